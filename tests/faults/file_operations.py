"""
The operations on files that a command performs, in their order and with their bytes, read from a log of strace.

:class:`Tree` is a directory in memory: numbered files and folders, and names that lead to them. :func:`read_operations` applies
each recorded call to such a tree, and so resolves its paths to numbers. The tree after the last call must be equal to the
directory that the command left: `unexpected_files` compares them, so a call that this module misreads does not stay hidden.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_CHANGING = (
    "openat open openat2 creat write pwrite64 writev pwritev pwritev2 sendfile copy_file_range splice ftruncate truncate fallocate "
    "fsync fdatasync syncfs sync link linkat symlink symlinkat rename renameat renameat2 mkdir mkdirat mknod mknodat unlink unlinkat "
    "rmdir mmap ioctl lseek"
)
STRACE_OPTIONS = ("-y", "-xx", "-s", str(1 << 24), "-e", f"trace={','.join(f'?{call}' for call in _CHANGING.split())}")
"""Each path and byte in hexadecimal, and nothing cut off."""
_NO_NUMBER = -1
ROOT = 0
"""The number of the folder at the top of a tree."""


@dataclass
class Entry:
    """A file, folder or symbolic link."""

    mode: int
    content: bytearray = field(default_factory=bytearray)
    """Of a file its bytes, of a link its target."""
    names: dict[str, int] = field(default_factory=dict)
    """Of a folder: name -> number."""
    mtime_ns: int | None = None
    """Unknown for a file that the command has created and removed."""

    @property
    def is_folder(self) -> bool:
        """Whether it has names."""
        return stat.S_ISDIR(self.mode)


@dataclass(frozen=True)
class Names:
    """Names that change in one step; a number of -1 stands for a removal."""

    changes: tuple[tuple[int, str, int], ...]
    """Folder, name, and the number that the name leads to afterwards."""
    subjects: frozenset[int]
    """The numbers whose names change."""
    call: str

    @property
    def folders(self) -> frozenset[int]:
        """The folders that have the names."""
        return frozenset(folder for folder, _, _ in self.changes)


@dataclass(frozen=True)
class Bytes:
    """Bytes that are written to a file."""

    file: int
    at: int
    data: bytes


@dataclass(frozen=True)
class Size:
    """A new size of a file: shorter, or longer by zeros."""

    file: int
    size: int


@dataclass(frozen=True)
class Sync:
    """A call that makes earlier operations durable: of a file its bytes, of a folder its names; or everything."""

    number: int | None
    """None: all files and folders (``syncfs``)."""
    begun: int
    """So many operations had ended when the call began."""


Operation = Names | Bytes | Size | Sync


class Tree:
    """A directory in memory."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}

    @classmethod
    def read(cls, folder: Path) -> Tree:
        """Read a directory. Files with several names get one number."""
        tree = cls()
        numbers: dict[tuple[int, int], int] = {}

        def add(path: str) -> int:
            status = os.lstat(path)
            identity = (status.st_dev, status.st_ino)
            if identity in numbers:
                return numbers[identity]
            number = numbers[identity] = len(tree.entries)
            entry = tree.entries[number] = Entry(status.st_mode, mtime_ns=status.st_mtime_ns)
            if entry.is_folder:
                entry.names = {name: add(os.path.join(path, name)) for name in sorted(os.listdir(path))}
            elif stat.S_ISLNK(status.st_mode):
                entry.content += os.fsencode(os.readlink(path))
            else:
                entry.content += Path(path).read_bytes()
            return number

        add(str(folder))
        return tree

    def copy(self) -> Tree:
        """Return a tree that changes independently of this one."""
        tree = Tree()
        tree.entries = {
            number: Entry(entry.mode, bytearray(entry.content), dict(entry.names), entry.mtime_ns)
            for number, entry in self.entries.items()
        }
        return tree

    def apply(self, operation: Operation) -> None:
        """Perform an operation completely."""
        if isinstance(operation, Names):
            for folder, name, number in operation.changes:
                if number == _NO_NUMBER:
                    self.entries[folder].names.pop(name, None)
                else:
                    self.entries[folder].names[name] = number
        elif isinstance(operation, Bytes):
            content = self.entries[operation.file].content
            content.extend(bytes(max(0, operation.at - len(content))))
            content[operation.at : operation.at + len(operation.data)] = operation.data
        elif isinstance(operation, Size):
            content = self.entries[operation.file].content
            del content[operation.size :]
            content.extend(bytes(operation.size - len(content)))

    def find(self, path: str) -> int | None:
        """Return the number of a path relative to the top."""
        number: int | None = ROOT
        for name in path.split("/") if path not in ("", ".") else ():
            if number is None:
                return None
            number = self.entries[number].names.get(name)
        return number

    def paths(self) -> Iterator[tuple[str, int]]:
        """Yield each path relative to the top with its number; folders come before their contents."""
        waiting = [("", ROOT)]
        while waiting:
            path, number = waiting.pop()
            yield path, number
            waiting += [(os.path.join(path, name), child) for name, child in self.entries[number].names.items()]

    def write(self, folder: Path) -> None:
        """Create the directory, with its hard links and times; `folder` does not exist yet."""
        written: dict[int, str] = {}
        rows = list(self.paths())
        for path, number in rows:
            entry, full = self.entries[number], os.path.join(folder, path) if path else str(folder)
            if number in written:
                os.link(written[number], full, follow_symlinks=False)
                continue
            written[number] = full
            if entry.is_folder:
                os.makedirs(full, exist_ok=True)
            elif stat.S_ISLNK(entry.mode):
                os.symlink(os.fsdecode(bytes(entry.content)), full)
                continue
            else:
                Path(full).write_bytes(entry.content)
            os.chmod(full, stat.S_IMODE(entry.mode))
        for path, number in reversed(rows):
            mtime = self.entries[number].mtime_ns
            if mtime is not None:
                os.utime(os.path.join(folder, path) if path else folder, ns=(mtime, mtime), follow_symlinks=False)


@dataclass(frozen=True)
class Recording:
    """A command's operations on a directory."""

    before: Tree
    """Has the files that the command creates, too, but no names that lead to them."""
    operations: tuple[Operation, ...]


def read_operations(log: str, before: Tree, folder: Path) -> Recording:
    """Return the operations of a log of strace on `folder`, whose content was `before`. Raise AssertionError if it cannot."""
    reader = _Reader(before.copy(), str(folder))
    for call, text, begun in _calls(log, reader.operations):
        reader.read(call, text, begun)
    after = Tree.read(folder)
    differences = unexpected_files(reader.tree, after)
    assert not differences, f"the operations do not lead to the directory: {differences[:5]}"
    numbers = {number: after.entries[other] for (path, number) in reader.tree.paths() if (other := after.find(path))}
    start = before.copy()
    for number, entry in reader.tree.entries.items():
        final = numbers.get(number)
        if number not in start.entries:
            start.entries[number] = Entry(
                final.mode if final else entry.mode, mtime_ns=final.mtime_ns if final else None
            )
        elif final is not None and not entry.is_folder:
            start.entries[number].mtime_ns = final.mtime_ns
    return Recording(start, tuple(reader.operations))


def unexpected_files(tree: Tree, other: Tree) -> list[str]:
    """Return the paths whose kind, bytes or hard links differ."""
    mine, others = dict(tree.paths()), dict(other.paths())
    pairs = {(number, others.get(path)) for path, number in mine.items()}
    return [
        path
        for path in sorted(mine.keys() | others.keys())
        if path not in mine
        or path not in others
        or tree.entries[mine[path]].is_folder != other.entries[others[path]].is_folder
        or tree.entries[mine[path]].content != other.entries[others[path]].content
        or sum(number == mine[path] for number, _ in pairs) != 1
    ]


_START = re.compile(r"(\d+)\s+(\w+)\((.*)")
_RESUMED = re.compile(r"(\d+)\s+<\.\.\. (\w+) resumed>(.*)")
_RESULT = re.compile(r"(.*)\)\s+=\s+(-?\d+)(.*)")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_DESCRIPTOR = re.compile(r"(\d+|AT_FDCWD)<([^>]*)>(\(deleted\))?")
_UNFINISHED = "<unfinished ...>"


def _calls(log: str, operations: list[Operation]) -> Iterator[tuple[str, str, int]]:
    """Yield name, text and beginning of each call in the order in which the calls end."""
    open_calls: dict[str, tuple[str, int]] = {}
    for line in log.splitlines():
        if match := _RESUMED.match(line):
            thread, call, rest = match.groups()
            text, begun = open_calls.pop(thread, ("", len(operations)))
            yield call, text + rest, begun
        elif match := _START.match(line):
            thread, call, rest = match.groups()
            if rest.endswith(_UNFINISHED):
                open_calls[thread] = (rest.removesuffix(_UNFINISHED), len(operations))
            else:
                yield call, rest, len(operations)


def _plain(text: str) -> str:
    """Decode the hexadecimal bytes of strace."""
    return os.fsdecode(_bytes(text))


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


class _Reader:
    """Applies calls to a tree, and collects them as operations."""

    def __init__(self, tree: Tree, folder: str) -> None:
        self.tree = tree
        self.operations: list[Operation] = []
        self._folder = folder
        self._positions: dict[tuple[str, int], int] = {}
        self._appending: set[tuple[str, int]] = set()

    def read(self, call: str, text: str, begun: int) -> None:
        """Read one call."""
        match = _RESULT.match(text)
        if match is None or int(match[2]) < 0:
            return
        # A call that ends later has a space at the place where strace has interrupted its line.
        arguments = [argument.strip() for argument in match[1].split(", ")]
        result, rest = int(match[2]), match[3]
        if call in ("syncfs", "sync"):
            self._add(Sync(None, begun))
        elif call in ("fsync", "fdatasync"):
            number = self._descriptor(arguments[0])
            if number is not None:
                self._add(Sync(number, begun))
        elif call in ("openat", "openat2", "open"):
            self._open(call, arguments, result, rest)
        elif call in ("write", "pwrite64", "writev", "sendfile", "copy_file_range", "ftruncate", "fallocate", "lseek"):
            self._content(call, arguments, result)
        elif call == "truncate":
            path = self._path(arguments[0])
            if path is not None:
                number = self.tree.find(path)
                assert number is not None, path
                self._add(Size(number, int(arguments[1])))
        elif call in ("mmap", "ioctl"):
            written = "PROT_WRITE" in text and "MAP_SHARED" in text if call == "mmap" else "CLONE" in text
            assert not written or not any(self._inside(path) is not None for _, path in self._descriptors(text)), text
        else:
            self._names(call, arguments)

    def _add(self, operation: Operation) -> None:
        self.tree.apply(operation)
        self.operations.append(operation)

    def _inside(self, path: str) -> str | None:
        path = os.path.normpath(path)
        if path == self._folder:
            return ""
        return path.removeprefix(f"{self._folder}/") if path.startswith(f"{self._folder}/") else None

    def _descriptors(self, text: str) -> list[tuple[str, str]]:
        return [(number, _plain(path)) for number, path, _ in _DESCRIPTOR.findall(text) if path.startswith("\\x")]

    def _descriptor(self, argument: str) -> int | None:
        """Return the number behind a descriptor; None outside of the directory, or without a name."""
        match = _DESCRIPTOR.match(argument)
        if match is None or match[3] or not match[2].startswith("\\x"):
            return None
        inside = self._inside(_plain(match[2]))
        if inside is None or inside.endswith(" (deleted)"):
            return None
        number = self.tree.find(inside)
        assert number is not None, f"{inside} has no name"
        return number

    def _path(self, argument: str, folder: str | None = None) -> str | None:
        """Return a path relative to the directory; None outside of it."""
        match = _STRING.fullmatch(argument)
        assert match is not None, argument
        path = _plain(match[1])
        if not path.startswith("/"):
            base = _DESCRIPTOR.match(folder or "")
            if base is None:
                return None
            path = os.path.join(_plain(base[2]), path)
        return self._inside(path)

    def _parent(self, path: str) -> tuple[int, str]:
        folder, _, name = path.rpartition("/")
        number = self.tree.find(folder)
        assert number is not None and name, path
        return number, name

    def _open(self, call: str, arguments: list[str], result: int, rest: str) -> None:
        path = self._path(arguments[0]) if call == "open" else self._path(arguments[1], arguments[0])
        if path is None:
            return
        flags = set(arguments[1 if call == "open" else 2].removeprefix("{flags=").split("|"))
        assert not flags & {"O_TMPFILE", "O_SYNC", "O_DSYNC"}, flags
        number = self.tree.find(path)
        if number is None:
            assert "O_CREAT" in flags and call != "openat2", path
            number = self._new(path, stat.S_IFREG | int(arguments[-1], 8) & ~0o022, call)
        elif "O_TRUNC" in flags and self.tree.entries[number].content:
            self._add(Size(number, 0))
        key = (str(result), number)
        self._positions[key] = 0
        self._appending.discard(key)
        if "O_APPEND" in flags:
            self._appending.add(key)
        assert rest.startswith("<"), rest

    def _new(self, path: str, mode: int, call: str, content: bytes = b"") -> int:
        number = len(self.tree.entries)
        self.tree.entries[number] = Entry(mode, bytearray(content))
        self._add(Names(((*self._parent(path), number),), frozenset({number}), call))
        return number

    def _content(self, call: str, arguments: list[str], result: int) -> None:
        target = arguments[2] if call == "copy_file_range" else arguments[0]
        number = self._descriptor(target)
        if number is None:
            return
        key = (target.partition("<")[0], number)
        entry = self.tree.entries[number]
        if call == "lseek":
            self._positions[key] = result
        elif call == "ftruncate":
            self._add(Size(number, int(arguments[1])))
        elif call == "fallocate":
            assert "PUNCH" not in arguments[1] and "RANGE" not in arguments[1], arguments
            size = int(arguments[2]) + int(arguments[3])
            if "KEEP_SIZE" not in arguments[1] and size > len(entry.content):
                self._add(Size(number, size))
        elif result > 0:
            at = len(entry.content) if key in self._appending else self._positions[key]
            if call == "pwrite64":
                at = int(arguments[3])
            else:
                self._positions[key] = at + result
            self._add(Bytes(number, at, self._data(call, arguments, result)))

    def _data(self, call: str, arguments: list[str], result: int) -> bytes:
        """Return the bytes that a call writes."""
        if call in ("sendfile", "copy_file_range"):
            source = arguments[1 if call == "sendfile" else 0]
            offset = arguments[2 if call == "sendfile" else 1]
            number = self._descriptor(source)
            content = bytes(self.tree.entries[number].content) if number is not None else b""
            if number is None:
                content = Path(_plain(_DESCRIPTOR.findall(source)[0][1])).read_bytes()
            key = (source.partition("<")[0], _NO_NUMBER if number is None else number)
            begin = re.match(r"\[(\d+)", offset)
            at = int(begin[1]) if begin else self._positions.get(key, 0)
            if not begin:
                self._positions[key] = at + result
            data = content[at : at + result]
        else:
            text = ", ".join(arguments[1:])
            assert '"...' not in text, "strace has cut off bytes"
            data = b"".join(map(_bytes, _STRING.findall(text)))[:result]
        assert len(data) == result, f"{call}: {len(data)} bytes instead of {result}"
        return data

    def _names(self, call: str, arguments: list[str]) -> None:
        """Read a call that creates, moves or removes names."""
        two = {"link": (0, 1), "rename": (0, 1), "linkat": (1, 3), "renameat": (1, 3), "renameat2": (1, 3)}
        if call in two:
            first, second = (
                self._path(arguments[at], arguments[at - 1] if at % 2 and len(arguments) > 2 else None)
                for at in two[call]
            )
            if first is None and second is None:
                return
            assert first is not None and second is not None, f"{call} leads out of the directory: {arguments}"
            self._two_names(call, first, second, exchange="RENAME_EXCHANGE" in arguments[-1])
            return
        assert call in ("mkdir", "mkdirat", "unlink", "unlinkat", "rmdir", "symlink", "symlinkat"), (
            f"{call} {arguments}"
        )
        if call in ("symlink", "symlinkat"):
            path = self._path(arguments[-1], arguments[1])
            target = _STRING.fullmatch(arguments[0])
            if path is not None and target is not None:
                self._new(path, stat.S_IFLNK | 0o777, call, _bytes(target[1]))
            return
        path = self._path(arguments[1], arguments[0]) if call.endswith("at") else self._path(arguments[0])
        if path is None:
            return
        if call.startswith("mkdir"):
            self._new(path, stat.S_IFDIR | int(arguments[-1], 8) & ~0o022, call)
            return
        number = self.tree.find(path)
        assert number is not None, path
        self._add(Names(((*self._parent(path), _NO_NUMBER),), frozenset({number}), call))

    def _two_names(self, call: str, first: str, second: str, *, exchange: bool) -> None:
        number, other = self.tree.find(first), self.tree.find(second)
        assert number is not None, first
        subjects = frozenset({number} if other is None else {number, other})
        to = (*self._parent(second), number)
        if call.startswith("link"):
            self._add(Names((to,), subjects, call))
        elif number != other:
            left = other if exchange and other is not None else _NO_NUMBER
            self._add(Names(((*self._parent(first), left), to), subjects, call))
