"""Reactions for the atom-mapping model: SMILES in Kekulé form, and the arrays that the model takes of them."""

from __future__ import annotations

from typing import Any

import numpy as np

REACTIONS = (
    "CC(=O)O.OCC>>CC(=O)OCC",
    "CC(=O)Cl.NC1=CC=CC=C1>>CC(=O)NC1=CC=CC=C1",
    "OC(=O)C1=CC=CC=C1.CO>>COC(=O)C1=CC=CC=C1",
    "BrCC1=CC=CC=C1.OC>>COCC1=CC=CC=C1",
    "CC=O.NC>>CCNC",
    "OB(O)C1=CC=CC=C1.BrC1=CC=NC=C1>>C1=CC=CC=C1C1=CC=NC=C1",
    "CC(C)=O>>CC(C)O",
    "C=CC=C.C=CC=O>>O=CC1CCC=CC1",
    "CC(C)(C)OC(=O)NCC1=CC=CC=C1>>NCC1=CC=CC=C1",
    "ClC1=NC=CC=N1.NCCO>>OCCNC1=NC=CC=N1",
    "O=C=NC1=CC=CC=C1.OCC>>CCOC(=O)NC1=CC=CC=C1",
    "CC(=O)OC1=CC=CC=C1C(=O)O>>OC1=CC=CC=C1C(=O)O",
    "CCOC(=O)CC(=O)OCC.BrCC>>CCOC(=O)C(CC)C(=O)OCC",
    "FC1=CC=C(C=C1)C=O.CC(=O)C>>CC(=O)C=CC1=CC=C(F)C=C1",
    "OCC1=CC=CC=C1>>O=CC1=CC=CC=C1",
    "NC1=CC=CC=C1.ClS(=O)(=O)C1=CC=CC=C1>>O=S(=O)(NC1=CC=CC=C1)C1=CC=CC=C1",
    "CC(=O)C1=CC=CC=C1.BrBr>>BrCC(=O)C1=CC=CC=C1",
    "OC1=CC=CC=C1.CI>>COC1=CC=CC=C1",
    "CCN.O=C1CCCO1>>CCNC(=O)CCCO",
    "SCC.BrCCC>>CCSCCC",
)
_NUMBER = {"C": 6, "N": 7, "O": 8, "B": 5, "F": 9, "Cl": 17, "Br": 35, "I": 53, "S": 16, "P": 15}
_VALENCES = {"C": (4,), "N": (3,), "O": (2,), "B": (3,), "S": (2, 4, 6), "P": (3, 5)}
_FARTHEST, _MOST_NEIGHBOURS = 10, 14


def parsed(smiles: str) -> tuple[list[str], np.ndarray]:
    """Elements and the matrix of bond orders of one molecule."""
    elements: list[str] = []
    bonds: list[tuple[int, int, int]] = []
    branches: list[int] = []
    rings: dict[str, int] = {}
    last, order, i = -1, 1, 0
    while i < len(smiles):
        one = smiles[i : i + 2] if smiles[i : i + 2] in _NUMBER else smiles[i]
        if one in _NUMBER:
            elements.append(one)
            if last >= 0:
                bonds.append((last, len(elements) - 1, order))
            last, order = len(elements) - 1, 1
        elif one in "=#":
            order = 2 if one == "=" else 3
        elif one == "(":
            branches.append(last)
        elif one == ")":
            last = branches.pop()
        elif one in rings:
            bonds.append((rings.pop(one), last, order))
            order = 1
        else:
            rings[one] = last
        i += len(one)
    table = np.zeros((len(elements), len(elements)), int)
    for a, b, kind in bonds:
        table[a, b] = table[b, a] = kind
    return elements, table


def encoded(reaction: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Inputs of the model, and which of its tokens are atoms of reactants and products, their elements and links, and
    which are alike.

    A token for the reaction, then for each molecule one token and its atoms. atoms: number + 2; neighbors: bonds and
    hydrogens + 2; distances: bonds between two atoms + 2, 1 to the molecule's token, 0 between molecules; roles: 2 for
    reactants, 3 for products.
    """
    from scipy.sparse.csgraph import shortest_path

    atoms, neighbours, roles, elements, blocks = (
        [0],
        [0],
        [1],
        [""],
        [(1, np.ones((1, 1), int), np.zeros((1, 1), bool))],
    )
    for role, side in zip((2, 3), reaction.split(">>"), strict=True):
        for smiles in side.split("."):
            names, bonds = parsed(smiles)
            orders = bonds.sum(1)
            hydrogens = [
                next((v - n for v in _VALENCES.get(e, (1,)) if v >= n), 0) for e, n in zip(names, orders, strict=True)
            ]
            atoms += [1, *(_NUMBER[name] + 2 for name in names)]
            near = (bonds > 0).sum(1) + np.array(hydrogens)
            neighbours += [0, *(int(each) + 2 for each in np.minimum(near, _MOST_NEIGHBOURS))]
            roles += [0, *[role] * len(names)]
            elements += ["", *names]
            size = len(names) + 1
            distance, links = np.ones((size, size), int), np.zeros((size, size), bool)
            distance[1:, 1:] = np.minimum(shortest_path(bonds > 0, unweighted=True), _FARTHEST) + 2
            links[1:, 1:] = bonds > 0
            blocks.append((size, distance, links))
    distances, joined, start = np.zeros((len(atoms),) * 2, int), np.zeros((len(atoms),) * 2, bool), 0
    for size, distance, links in blocks:
        distances[start : start + size, start : start + size] = distance
        joined[start : start + size, start : start + size] = links
        start += size
    feeds = {"atoms": atoms, "neighbors": neighbours, "distances": distances, "roles": roles}
    found = {"reactant": np.flatnonzero(np.array(roles) == 2), "product": np.flatnonzero(np.array(roles) == 3)}
    return (
        {name: np.array(each, np.int64)[None] for name, each in feeds.items()},
        found | {"element": np.array(elements), "links": joined, "alike": alike(atoms, neighbours, joined)},
    )


def alike(atoms: list[int], neighbours: list[int], links: np.ndarray) -> np.ndarray:
    """A number for each token; atoms that no path of bonds tells apart have the same: the model scores them alike."""
    kinds: list[Any] = list(zip(atoms, neighbours, strict=True))
    for _ in range(len(atoms)):
        around = [(kinds[i], tuple(sorted(kinds[j] for j in np.flatnonzero(row)))) for i, row in enumerate(links)]
        order = {kind: i for i, kind in enumerate(sorted(set(around)))}
        kinds = [order[kind] for kind in around]
    return np.array(kinds)
