"""The kernels that run the notebooks of the documentation say nothing of their own."""

c = get_config()  # noqa: F821
c.Application.log_level = "ERROR"
