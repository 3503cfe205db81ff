"""Files beside a table, in any of Hadoop's file systems: few and small, read and written as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidecar.pipeline.errors import PipelineError, first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def absolute(path: str) -> str:
    """An absolute path or URI, as Spark takes it, without a slash at its end."""
    return path.rstrip("/") if "://" in path else str(Path(path).absolute())


class Folder:
    """A directory that need not exist. `path` as Spark takes it: a local path, `s3a://…`, `hdfs://…`.

    Raises `PipelineError` for a file system that is not available.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path.rstrip("/") or "/"
        self._jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no other way to Hadoop's file systems
        self._root = self._jvm.org.apache.hadoop.fs.Path(self.path)
        session: Any = spark._jsparkSession  # noqa: SLF001 - as above
        configuration = session.sessionState().newHadoopConf()
        try:
            self._files = self._root.getFileSystem(configuration)
        except Exception as error:
            raise PipelineError(
                f"{self.path} is in a file system that cannot be reached ({first_line(error)}): is its address right?"
                " Hadoop's modules for object stores have to be brought, as"
                " --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:3.5.0 for s3a"
            ) from error

    def names(self, *below: str, hidden: bool = False) -> list[str] | None:
        """The names in the directory, or in one below it; None if it does not exist or is a file. Names that begin with
        a dot are left out unless `hidden`: Hadoop's file systems keep checksums under such names.
        """
        place = self._place(below)
        if not self._files.exists(place) or self._files.getFileStatus(place).isFile():
            return None
        found = (str(each.getPath().getName()) for each in self._files.listStatus(place))
        return [name for name in found if hidden or not name.startswith(".")]

    def is_file(self) -> bool:
        """Whether the path is a file."""
        return bool(self._files.exists(self._root) and self._files.getFileStatus(self._root).isFile())

    def read(self, *below: str) -> str | None:
        """A file's text; None if it does not exist."""
        place = self._place(below)
        if not self._files.exists(place):
            return None
        stream = self._files.open(place)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode(errors="replace")
        finally:
            stream.close()

    def write(self, text: str, *below: str) -> None:
        """Create a file, whole or not at all. It must not exist yet."""
        place = self._place(below)
        draft = self._jvm.org.apache.hadoop.fs.Path(place.getParent(), f".{place.getName()}")
        stream = self._files.create(draft, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._files.rename(draft, place)

    def delete(self) -> None:
        """Delete the directory with its content."""
        self._files.delete(self._root, True)

    def _place(self, below: tuple[str, ...]) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path("/".join((self.path, *below)))
