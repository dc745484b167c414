"""Sources of samples, one a file; how images become inputs."""
