"""What a call in a module's source returns, and what is wrong with it: len(tensor), int(tensor), deepcopy, ..."""

from __future__ import annotations

import ast
import builtins
import copy
import dataclasses
import functools
import inspect
from typing import TYPE_CHECKING, Any

from truehalf.exporting.source_lint import dtype_constants, tensor_methods
from truehalf.exporting.source_lint.builtin_calls import builtin
from truehalf.exporting.source_lint.functions import definition, entry, may_read, python_function
from truehalf.exporting.source_lint.hooks import hooked
from truehalf.exporting.source_lint.local_functions import SPREAD, bound, method_of_mapping, spread_out
from truehalf.exporting.source_lint.values import (
    NONE,
    SHAPE,
    SIZE,
    TENSOR,
    UNKNOWN,
    Value,
    elements,
    join,
    join_all,
    known,
    listed,
    record,
    sequence,
)

if TYPE_CHECKING:
    from truehalf.exporting.source_lint.expressions import Reader

Arguments = dict[str, Value]
_LIKE_TORCH = {"torch", "einops", "torchvision"}  # a tensor in is a tensor out
_PARTS = {"items", "keys", "values", "children", "named_children", "modules", "parameters", "buffers"}
_KEEPS = {"append", "extend", "insert", "add", "update", "setdefault", "pop", "get", "index", "format"}  # of containers
_WHILE_EXPORTING = {
    "is_tracing": True,
    "is_in_onnx_export": True,
    "is_scripting": False,
    "is_compiling": False,
    "is_dynamo_compiling": False,
    "is_exporting": False,
}


def call(reader: Reader, node: ast.Call) -> Value:
    args, whole = _positional(reader, node)
    kwargs = {word.arg: reader.value(word.value) for word in node.keywords if word.arg is not None}
    for word in node.keywords:
        if word.arg is None:  # **rest
            kwargs = spread_out(kwargs, reader.value(word.value))
        elif word.arg == "out" and kwargs["out"].is_tensor:
            reader.written(word.value)
    function = node.func
    if isinstance(function, ast.Attribute):
        owner = reader.value(function.value)
        if owner.is_tensor:
            return _tensor_method(reader, node, function, owner, args, kwargs)
        if owner.kind == "shape" and function.attr == "numel":
            return SIZE
        if owner.kind == "mapping":
            return method_of_mapping(function.attr, owner, args)
        if owner.kind in ("list", "sequence", "record") or (owner.kind == "known" and type(owner.known) is list):
            return _container_method(reader, function, owner, args)
        if owner.kind == "unknown" and function.attr in _KEEPS:
            return UNKNOWN
    return call_value(reader, node, reader.value(function), args if whole else [], kwargs)


def call_value(reader: Reader, node: ast.AST, target: Value, args: list[Value], kwargs: Arguments) -> Value:
    """What a value returns that is called."""
    if target.kind == "local":
        return reader.follow_local(target.known, bound(target.known, args, kwargs))
    if target.kind == "known":
        return call_known(reader, node, target.known, args, kwargs)
    if any(value.holds_tensor for value in (*args, *kwargs.values())):
        reader.not_followed(node)
    return UNKNOWN


def _positional(reader: Reader, node: ast.Call) -> tuple[list[Value], bool]:
    """The positional arguments, and whether each is at its place."""
    values: list[Value] = []
    whole = True
    for arg in node.args:
        value = reader.value(arg)
        if isinstance(arg, ast.Starred):
            inner, each = elements(value)
            values += inner
            whole = whole and (each or value.kind == "shape")
        else:
            values.append(value)
    return values, whole


def _tensor_method(
    reader: Reader, node: ast.Call, function: ast.Attribute, owner: Value, args: list[Value], kwargs: Arguments
) -> Value:
    name = function.attr
    if name in tensor_methods.READ_OUT:
        reader.report("py-item", node)
        return SIZE if name == "item" else UNKNOWN
    if name.endswith("_") and not name.endswith("__"):  # in place
        reader.written(function.value)
    result = tensor_methods.method(name, args, kwargs)
    return dtype_constants.typed(reader, node, name, result, [owner, *args], kwargs)


def _container_method(reader: Reader, function: ast.Attribute, owner: Value, args: list[Value]) -> Value:
    """append, extend and insert change what is known of the list; the values of a dict are its own."""
    name = function.attr
    if name in ("append", "extend", "insert"):
        reader.written(function.value)
        if isinstance(function.value, ast.Name) and args:
            old, each = elements(owner)
            if name == "append" and each:
                grown = listed([*old, args[0]])
            elif name == "extend" and each and elements(args[0])[1]:
                grown = listed([*old, *elements(args[0])[0]])
            else:
                grown = sequence(join_all([*old, *(args[-1:] if name != "extend" else elements(args[0])[0])]))
            reader.frame.variables[function.value.id] = grown
        return NONE
    if owner.kind == "record":
        if name == "values":
            return listed(owner.items)
        if name == "items":
            return listed(listed([known(key), item]) for key, item in zip(owner.names, owner.items, strict=True))
        if name == "keys":
            return known(list(owner.names))
        if name in ("get", "pop") and args and args[0].kind == "known" and args[0].known in owner.names:
            return owner.items[owner.names.index(args[0].known)]
        return UNKNOWN
    return join_all(owner.items) if name == "pop" and owner.items else UNKNOWN


def call_known(reader: Reader, node: ast.AST, function: Any, args: list[Value], kwargs: Arguments) -> Value:
    import torch

    if isinstance(function, functools.partial):
        given = {key: known(value) for key, value in function.keywords.items()}
        return call_known(reader, node, function.func, [*map(known, function.args), *args], given | kwargs)
    if isinstance(function, (torch.jit.ScriptFunction, torch.jit.ScriptModule)):
        return TENSOR
    if isinstance(function, torch.nn.Module):
        return _module(reader, node, function, args, kwargs)
    if function is super:
        return _super(reader)
    if function is copy.deepcopy:
        if args and args[0].holds_tensor:
            reader.report("py-deepcopy", node)
        return args[0] if args else UNKNOWN
    if _is_builtin(function):
        return builtin(reader, node, function.__name__, args)
    tensors = any(value.holds_tensor for value in (*args, *kwargs.values()))
    top = (getattr(function, "__module__", None) or "").partition(".")[0]
    if top in ("math", "numpy") and any(value.is_tensor for value in args):
        reader.report("py-item", node)
        return SIZE
    name = getattr(function, "__name__", "")
    if name in _WHILE_EXPORTING and top == "torch":
        return known(_WHILE_EXPORTING[name])
    if inspect.isclass(function):
        return _constructed(reader, node, function, args, kwargs, tensors)
    if function is torch.utils.checkpoint.checkpoint and args:
        return call_value(reader, node, args[0], args[1:], {})
    return _function(reader, node, function, args, kwargs, tensors, top, name)


def _is_builtin(function: Any) -> bool:
    return getattr(builtins, getattr(function, "__name__", ""), None) is function


def _function(
    reader: Reader,
    node: ast.AST,
    function: Any,
    args: list[Value],
    kwargs: Arguments,
    tensors: bool,
    top: str,
    name: str,
) -> Value:
    import torch

    plain = python_function(function)
    if plain is torch.nn.Module.__call__ and isinstance(getattr(function, "__self__", None), torch.nn.Module):
        return _as_torch_calls(reader, node, function.__self__, args, kwargs)  # super().__call__(x)
    if plain is not None and may_read(plain, reader.packages) and definition(plain) is not None:
        myself = getattr(function, "__self__", None)
        return follow(reader, plain, [*([] if myself is None else [known(myself)]), *args], kwargs)
    if name == "is_tensor" and args:
        return known(args[0].kind == "tensor") if args[0].kind != "unknown" else UNKNOWN
    myself = getattr(function, "__self__", None)
    if isinstance(myself, (torch.nn.Module, torch.nn.ParameterList, dict)):
        if name in _PARTS and not args:
            return known(list(function()))
        return TENSOR if tensors and top == "torch" else UNKNOWN
    of_torch = top == "torch" or getattr(torch, name, None) is function or getattr(torch.Tensor, name, None) is function
    if of_torch or getattr(torch.nn.functional, name, None) is function:
        result = tensor_methods.function(name, args, kwargs)
        return dtype_constants.typed(reader, node, name, result, args, kwargs)
    if tensors and top in _LIKE_TORCH:
        return TENSOR
    if tensors and top not in ("numpy", "math", "warnings", "logging"):
        reader.not_followed(node)
    return UNKNOWN


def follow(reader: Reader, function: Any, args: list[Value], kwargs: Arguments) -> Value:
    """The result of a def, its parameters bound as python binds them."""
    from truehalf.exporting.source_lint.expressions import is_tensor_annotation

    parameters: Arguments = {}
    rest = list(args)
    left = dict(kwargs)
    spread = left.pop(SPREAD, None)
    for parameter in inspect.signature(function, follow_wrapped=False).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            value, rest = listed(rest), []
        elif parameter.kind is parameter.VAR_KEYWORD:
            value, left = record(left) if spread is None else spread, {}
        elif rest and parameter.kind is not parameter.KEYWORD_ONLY:
            value = rest.pop(0)
        elif parameter.name in left:
            value = left.pop(parameter.name)
        elif parameter.default is parameter.empty:
            value = UNKNOWN if spread is None else spread.items[0]
        else:
            value = known(parameter.default) if spread is None else join(known(parameter.default), spread.items[0])
        if value.kind == "unknown" and is_tensor_annotation(_annotation(parameter)):
            value = TENSOR
        parameters[parameter.name] = value
    return reader.follow(function, parameters)


def _annotation(parameter: inspect.Parameter) -> str:
    if parameter.annotation is parameter.empty:
        return ""
    return (
        parameter.annotation
        if isinstance(parameter.annotation, str)
        else inspect.formatannotation(parameter.annotation)
    )


def _module(reader: Reader, node: ast.AST, module: Any, args: list[Value], kwargs: Arguments) -> Value:
    name, own = entry(module)
    if name == "__call__" and own is not None and definition(own) is not None:
        return follow(reader, own, [known(module), *args], kwargs)
    return _as_torch_calls(reader, node, module, args, kwargs)


def _as_torch_calls(reader: Reader, node: ast.AST, module: Any, args: list[Value], kwargs: Arguments) -> Value:
    """What torch.nn.Module.__call__ does: forward, and the hooks around it."""

    def forward(args: list[Value], kwargs: Arguments) -> Value:
        return _forward(reader, node, module, args, kwargs)

    return hooked(reader, node, module, args, kwargs, forward)


def _forward(reader: Reader, node: ast.AST, module: Any, args: list[Value], kwargs: Arguments) -> Value:
    import torch

    forward = python_function(getattr(module, "forward", None))
    if isinstance(module, torch.nn.Sequential) and args and type(module).forward is torch.nn.Sequential.forward:
        value = args[0]
        for part in module:
            value = _module(reader, node, part, [value], {})
        return value
    if type(module).__module__.partition(".")[0] == "torch" or forward is None:
        result = tensor_methods.module(type(module).__name__)
        return dtype_constants.of_module(reader, module, result, [*args, *kwargs.values()])
    if definition(forward) is None:
        reader.not_followed(node)
        return UNKNOWN
    return follow(reader, forward, [known(module), *args], kwargs)


def _super(reader: Reader) -> Value:
    function, variables = reader.frame.function, reader.frame.variables
    myself = next(iter(variables.values()), UNKNOWN)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if "__class__" not in cells or myself.kind != "known":
        return UNKNOWN
    return Value("known", super(cells["__class__"].cell_contents, myself.known))


def _constructed(
    reader: Reader, node: ast.AST, cls: type, args: list[Value], kwargs: Arguments, tensors: bool
) -> Value:
    """A dataclass or named tuple is its fields; a torch.Tensor is a tensor."""
    import torch

    if issubclass(cls, torch.Tensor):
        return TENSOR
    if cls is torch.Size:
        return SHAPE
    names = list(getattr(cls, "_fields", ())) or (
        [field.name for field in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else []
    )
    if not names:
        if tensors and not issubclass(cls, BaseException):
            reader.not_followed(node)
        return UNKNOWN
    given = dict(zip(names, args, strict=False)) | kwargs
    return record({name: given.get(name, NONE) for name in names})
