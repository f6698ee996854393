"""The real disk."""

from holdfast.disk.file_storage import FileStorage

__all__ = ["FileStorage"]
