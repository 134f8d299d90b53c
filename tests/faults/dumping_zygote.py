"""The zygote of ``kstate dump``, which reads ranges in threads: one process, so that one trace has all calls."""

from tests.loop.zygote import _PACKAGES, read_in_threads

from . import zygote


def _keep_names(app: str) -> None:
    """Do nothing: the runs of one dump need different names."""


if __name__ == "__main__":
    import confluent_kafka.admin  # noqa: F401

    zygote._import_all(_PACKAGES)
    zygote._warm_up_restore()
    read_in_threads()
    zygote.count_names = _keep_names
    zygote.serve()
