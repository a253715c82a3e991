"""Decode the text of a foreign file in any Unicode encoding.

A byte order mark decides the encoding. Without one a file is UTF-8, or UTF-16 if every other byte of its beginning is
zero, which occurs in no other text. An old code page (Latin-1, Windows-1252) is refused, never guessed: its bytes do
not show which one it is, and a wrong guess would change names.
"""

import codecs

# The mark of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_HEAD_BYTES = 1024
_ZIP, _OLE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
_SHEETS = (b"xl/workbook", b"opendocument.spreadsheet", _OLE)


class NotTextError(ValueError):
    """The bytes are not text; the message is the end of a sentence that begins with the file's name."""


def as_utf8(data: bytes) -> bytes:
    """Return text of any Unicode encoding as UTF-8 without a byte order mark, and other bytes unchanged."""
    mark, form = next(((mark, form) for mark, form in _MARKS if data.startswith(mark)), (b"", _unmarked(data)))
    data = data[len(mark) :] if mark else data
    if form == "utf-8":
        return data
    try:
        return data.decode(form).encode()
    except UnicodeError as error:
        place = len(mark) + getattr(error, "start", 0)
        raise NotTextError(f"is damaged {form[:6].upper()} text, or was truncated (byte {place})") from None


def text_of(data: bytes) -> str:
    """Return the text in some bytes; NotTextError if they are not text."""
    data = as_utf8(data)
    try:
        place = data.find(b"\x00")
        if place < 0:
            return data.decode()
    except UnicodeDecodeError as error:
        place = error.start
    if data.startswith((_ZIP, _OLE)):
        sheet = any(sign in data for sign in _SHEETS)
        raise NotTextError("is a spreadsheet; save its sheet as CSV" if sheet else "is a ZIP archive; unpack it")
    page = ", as in Latin-1 or another code page" if data[place] else ""
    raise NotTextError(f"is not UTF-8 or UTF-16 text (byte {place} is 0x{data[place]:02x}{page}); save it as UTF-8")


def _unmarked(data: bytes) -> str:
    """Return the encoding of bytes without a byte order mark."""
    if b"\x00" in data[:2]:
        even, odd = (data[start:_HEAD_BYTES:2] for start in (0, 1))
        for form, zeros, others in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
            if 2 * zeros.count(0) > len(zeros) and not others.count(0):
                return form
    return "utf-8"
