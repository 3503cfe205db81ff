# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""The walk through the records of a batch, compiled: `_records_pure.py` says what it does and is its twin. Requests,
answers and batches of Produce: `_produce.pxi`; requests and answers of Fetch: `_fetch.pxi`.

Every read is checked against the end of the record (and that against the end of the section) before it is made:
`Cursor.at <= Cursor.end` holds throughout, and a length is compared with what is left, never added first.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from sidecar.protocol import _records_pure as pure

cdef enum:
    NONE = 0
    RISING = 1
    OTHER = 2

cdef enum:
    AT_ONCE = 512  # records that objects are made of without a break: 0.1 ms
    MOST_DIGITS = 19
    MOST_VALUES = 2
    LONGEST_NAME = 255
    MOST_ADDED = 8  # bytes by which a record grows under another offset delta: that, and its length

cdef enum:
    # `_records_pure` numbers its reasons so; the module refuses to load where they differ.
    FINE = -1
    RUNS_OVER = 0
    LONG_VARINT = 1
    NOT_DENSE = 2
    NEGATIVE_HEADERS = 3
    NEGATIVE_HEADER_KEY = 4
    TOO_LONG = 5
    BEHIND = 6
    NO_RECORDS = 7

cdef enum:
    KEY = 1
    VALUE = 2
    HEADERS = 4

assert (KEY, VALUE, HEADERS) == (pure.KEY, pure.VALUE, pure.HEADERS)
assert (MOST_VALUES, LONGEST_NAME) == (pure.MOST_VALUES, pure.LONGEST_NAME_BYTES)
assert (NONE, RISING, OTHER) == (pure.NONE, pure.RISING, pure.OTHER)
assert (RUNS_OVER, LONG_VARINT, NOT_DENSE, NEGATIVE_HEADERS, NEGATIVE_HEADER_KEY, TOO_LONG, BEHIND, NO_RECORDS) == (
    pure.RUNS_OVER,
    pure.LONG_VARINT,
    pure.NOT_DENSE,
    pure.NEGATIVE_HEADERS,
    pure.NEGATIVE_HEADER_KEY,
    pure.TOO_LONG,
    pure.BEHIND,
    pure.NO_RECORDS,
)

cdef uint64_t LARGEST_ID = 0x7FFFFFFFFFFFFFFF


cdef struct Wanted:
    const unsigned char* id
    Py_ssize_t id_size
    const unsigned char* name
    Py_ssize_t name_size


cdef struct Cursor:
    const unsigned char* data
    Py_ssize_t at
    Py_ssize_t end


cdef struct Record:
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t headers
    Py_ssize_t end
    # Of key and value: where they begin, and their sizes, below 0 for null.
    Py_ssize_t field_at[2]
    int32_t field_size[2]


cdef struct Header:
    # The kind of the header, its key and its value; a size below 0 is null.
    bint is_id
    bint is_name
    Py_ssize_t key_at
    int32_t key_size
    Py_ssize_t value_at
    int32_t value_size


cdef inline int _uvarint(Cursor* cursor, int most_bits, uint64_t* found) noexcept nogil:
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef unsigned char byte
    while shift < most_bits:
        if cursor.at >= cursor.end:
            return RUNS_OVER
        byte = cursor.data[cursor.at]
        cursor.at += 1
        raw |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            found[0] = raw
            return FINE
        shift += 7
    return LONG_VARINT


cdef inline int _varint(Cursor* cursor, int32_t* found) noexcept nogil:
    cdef uint64_t wide
    cdef uint32_t raw
    cdef int fault = _uvarint(cursor, 35, &wide)
    if fault != FINE:
        return fault
    raw = <uint32_t>wide
    found[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
    return FINE


cdef inline int _varlong(Cursor* cursor, int64_t* found) noexcept nogil:
    cdef uint64_t raw
    cdef int fault = _uvarint(cursor, 70, &raw)
    if fault != FINE:
        return fault
    found[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
    return FINE


cdef inline int _skip(Cursor* cursor, int32_t size) noexcept nogil:
    if size > 0:
        if size > cursor.end - cursor.at:
            return RUNS_OVER
        cursor.at += size
    return FINE


cdef inline int _begin(Cursor* cursor, Py_ssize_t section, Py_ssize_t index, bint dense, Record* record) noexcept nogil:
    """From the length to the number of headers; `cursor.end` becomes the record's."""
    cdef int32_t size
    cdef int field
    cdef int fault
    cursor.end = section
    fault = _varint(cursor, &size)
    if fault != FINE:
        return fault
    if size <= 0 or size > section - cursor.at:
        return RUNS_OVER
    cursor.end = record.end = cursor.at + size
    cursor.at += 1
    fault = _varlong(cursor, &record.timestamp_delta)
    if fault == FINE:
        fault = _varint(cursor, &record.offset_delta)
    if fault != FINE:
        return fault
    if dense and record.offset_delta != index:
        return NOT_DENSE
    for field in range(2):
        fault = _varint(cursor, &record.field_size[field])
        if fault == FINE:
            record.field_at[field] = cursor.at
            fault = _skip(cursor, record.field_size[field])
        if fault != FINE:
            return fault
    fault = _varint(cursor, &record.headers)
    if fault == FINE and record.headers < 0:
        return NEGATIVE_HEADERS
    return fault


cdef inline int _header(Cursor* cursor, const Wanted* wanted, Header* header) noexcept nogil:
    cdef int32_t size
    cdef const unsigned char* key
    cdef int fault = _varint(cursor, &size)
    if fault != FINE:
        return fault
    if size < 0:
        return NEGATIVE_HEADER_KEY
    key = cursor.data + cursor.at
    header.key_at = cursor.at
    header.key_size = size
    fault = _skip(cursor, size)
    if fault != FINE:
        return fault
    header.is_id = size == wanted.id_size and memcmp(key, wanted.id, size) == 0
    header.is_name = not header.is_id and size == wanted.name_size and memcmp(key, wanted.name, size) == 0
    fault = _varint(cursor, &header.value_size)
    if fault != FINE:
        return fault
    header.value_at = cursor.at
    return _skip(cursor, header.value_size)


cdef inline int64_t _id_of(const unsigned char* digits, int32_t size) noexcept nogil:
    cdef uint64_t found = 0
    cdef int32_t at = 0
    cdef int32_t position
    if size <= 0:
        return -1
    while at < size and digits[at] == 0x30:
        at += 1
    for position in range(at, size):
        if digits[position] < 0x30 or digits[position] > 0x39 or position - at >= MOST_DIGITS:
            return -1
        found = found * 10 + (digits[position] - 0x30)  # 19 digits fit into 64 bits
    return <int64_t>found if found <= LARGEST_ID else -1


cdef inline bint _is_plain_name(const unsigned char* name, int32_t size) noexcept:
    """A name that nothing can be wrong with; Python decides on others."""
    cdef int32_t position
    if size <= 0 or size > LONGEST_NAME:
        return False
    for position in range(size):
        if name[position] > 0x7F:
            return False
    return True


cdef inline bint _joins(int kind, Py_ssize_t index, int64_t last, int64_t found) noexcept nogil:
    """Whether an id carries on a rising row, or begins it with the first record."""
    return found > last if kind == RISING else index == 0 and kind == NONE


cdef enum:
    LARGE = 1048576  # bytes of a section beyond which other threads go on meanwhile


cdef struct Summary:
    int kind
    int64_t first
    int64_t last
    Py_ssize_t index


cdef int _summarise(Cursor* cursor, Py_ssize_t size, Py_ssize_t count, const Wanted* wanted, bint dense, Summary* summary) noexcept nogil:
    cdef Record record
    cdef Header header
    cdef int32_t turn
    cdef int ids
    cdef int names
    cdef int64_t found
    cdef int fault
    while summary.index < count:
        fault = _begin(cursor, size, summary.index, dense, &record)
        if fault != FINE:
            return fault
        ids = names = 0
        found = -1
        for turn in range(record.headers):
            fault = _header(cursor, wanted, &header)
            if fault != FINE:
                return fault
            if header.is_id:
                ids = 2 if ids else 1
                found = _id_of(cursor.data + header.value_at, header.value_size)
            elif header.is_name:
                names = 1
        if cursor.at != record.end:
            return TOO_LONG
        if ids == 1 and not names and found >= 0 and _joins(summary.kind, summary.index, summary.last, found):
            summary.kind = RISING
            summary.first = summary.first if summary.index else found
            summary.last = found
        elif ids or names or summary.kind == RISING:
            summary.kind = OTHER
        summary.index += 1
    return FINE if cursor.at == size else BEHIND


def summarise(object records, Py_ssize_t count, bytes id_header not None, bytes name_header not None, bint dense=True):
    cdef Py_buffer view
    cdef Cursor cursor
    cdef Wanted wanted
    cdef Summary summary
    cdef int fault = NO_RECORDS
    summary.kind = NONE
    summary.first = summary.last = -1
    summary.index = 0
    _want(&wanted, id_header, name_header)
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        cursor.data = <const unsigned char*>view.buf
        cursor.at = 0
        if count > 0 and view.len > LARGE:
            with nogil:
                fault = _summarise(&cursor, view.len, count, &wanted, dense, &summary)
        elif count > 0:
            fault = _summarise(&cursor, view.len, count, &wanted, dense, &summary)
    finally:
        PyBuffer_Release(&view)
    if fault != FINE:
        pure.refuse(fault, summary.index)
    if summary.kind == RISING:
        return RISING, summary.first, summary.last
    return summary.kind, -1, -1


def walk(
    object records, Py_ssize_t count, bytes id_header not None, bytes name_header not None, bint dense=True, bytes own=None
):
    cdef Py_buffer view
    cdef Cursor cursor
    cdef Record record
    cdef Header header
    cdef Wanted wanted
    cdef Py_ssize_t index = 0
    cdef Py_ssize_t start
    cdef Py_ssize_t headers_at
    cdef int32_t turn
    cdef int64_t sequence_id
    cdef bint is_plain
    cdef int fault = FINE
    cdef list found = []
    cdef object name
    _want(&wanted, id_header, name_header)
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        cursor.data = <const unsigned char*>view.buf
        cursor.at = 0
        if count <= 0:
            fault = NO_RECORDS
        while fault == FINE and index < count:
            start = cursor.at
            fault = _begin(&cursor, view.len, index, dense, &record)
            if fault != FINE:
                break
            headers_at = cursor.at
            sequence_id = -1
            name = None
            is_plain = True
            for turn in range(record.headers):
                fault = _header(&cursor, &wanted, &header)
                if fault != FINE:
                    break
                if header.is_id:
                    is_plain = is_plain and sequence_id < 0
                    sequence_id = _id_of(cursor.data + header.value_at, header.value_size)
                    is_plain = is_plain and sequence_id >= 0
                elif header.is_name:
                    if is_plain and name is None and _is_plain_name(cursor.data + header.value_at, header.value_size):
                        name = PyBytes_FromStringAndSize(
                            <const char*>cursor.data + header.value_at, header.value_size
                        )
                    else:
                        is_plain = False
            if fault != FINE:
                break
            if cursor.at != record.end:
                fault = TOO_LONG
                break
            if is_plain:
                found.append((
                    start, record.end, record.timestamp_delta, record.offset_delta,
                    sequence_id if sequence_id >= 0 else None, own if name is None else name, None,
                ))
            else:
                cursor.at = headers_at
                found.append((
                    start, record.end, record.timestamp_delta, record.offset_delta,
                    None, None, _values(&cursor, &wanted, record.headers),
                ))
            index += 1
            if index % AT_ONCE == 0:
                with nogil:  # who waits for Python's lock gets it here
                    pass
        if fault == FINE and cursor.at != view.len:
            fault = BEHIND
    finally:
        PyBuffer_Release(&view)
    if fault != FINE:
        pure.refuse(fault, index)
    return found


def newest(object records, Py_ssize_t count, int64_t base):
    cdef Py_buffer view
    cdef Cursor cursor
    cdef Record record
    cdef Header header
    cdef Wanted wanted
    cdef Py_ssize_t index = 0
    cdef int32_t turn
    cdef int64_t at
    cdef int64_t found = 0
    cdef int fault = FINE
    _want(&wanted, b"", b"")
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        cursor.data = <const unsigned char*>view.buf
        cursor.at = 0
        if count <= 0:
            fault = NO_RECORDS
        with nogil:
            while fault == FINE and index < count:
                fault = _begin(&cursor, view.len, index, False, &record)
                if fault != FINE:
                    break
                for turn in range(record.headers):
                    fault = _header(&cursor, &wanted, &header)
                    if fault != FINE:
                        break
                if fault == FINE and cursor.at != record.end:
                    fault = TOO_LONG
                if fault != FINE:
                    break
                at = <int64_t>(<uint64_t>base + <uint64_t>record.timestamp_delta)  # as Java adds
                if index == 0 or at > found:
                    found = at
                index += 1
        if fault == FINE and cursor.at != view.len:
            fault = BEHIND
    finally:
        PyBuffer_Release(&view)
    if fault != FINE:
        pure.refuse(fault, index)
    return found


cdef tuple _values(Cursor* cursor, const Wanted* wanted, int32_t headers):
    """What a record has in the wanted headers; it has been walked through before."""
    cdef Header header
    cdef int32_t turn
    cdef tuple ids = ()
    cdef tuple names = ()
    cdef object value
    for turn in range(headers):
        _header(cursor, wanted, &header)
        if (header.is_id and len(ids) < MOST_VALUES) or (header.is_name and len(names) < MOST_VALUES):
            value = None
            if header.value_size >= 0:
                value = PyBytes_FromStringAndSize(<const char*>cursor.data + header.value_at, header.value_size)
            if header.is_id:
                ids = (*ids, value)
            else:
                names = (*names, value)
    return ids, names


cdef bint _is_name(const unsigned char* name, int32_t size):
    """As `_records_pure.is_name`."""
    return _is_plain_name(name, size) or (
        0 < size <= LONGEST_NAME and pure.is_name(PyBytes_FromStringAndSize(<const char*>name, size))
    )


cdef inline bint _is_same(object known, const unsigned char* name, int32_t size):
    return (
        known is not None
        and size == len(<bytes>known)
        and memcmp(<const unsigned char*><const char*><bytes>known, name, size) == 0
    )


def stretches(
    object records, Py_ssize_t count, bytes id_header not None, bytes name_header not None, int32_t low, int32_t high
):
    cdef Py_buffer view
    cdef Cursor cursor
    cdef Record record
    cdef Header header
    cdef Wanted wanted
    cdef Py_ssize_t index = 0
    cdef int32_t turn
    cdef int ids
    cdef int names
    cdef int64_t found
    cdef const unsigned char* name
    cdef int32_t name_size
    cdef bint is_bad
    cdef bint is_new
    cdef int fault = FINE
    cdef list done = []
    # The stretch that is open: its name, its numbers.
    cdef object its_name = None
    cdef int64_t its_records = 0
    cdef int64_t its_ids = 0
    cdef int64_t its_bad = 0
    cdef int64_t first_id = -1
    cdef int64_t last_id = -1
    cdef int32_t first_delta = 0
    cdef int32_t last_delta = 0
    cdef int64_t first_time = 0
    cdef int64_t last_time = 0
    _want(&wanted, id_header, name_header)
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        cursor.data = <const unsigned char*>view.buf
        cursor.at = 0
        if count <= 0:
            fault = NO_RECORDS
        while fault == FINE and index < count:
            fault = _begin(&cursor, view.len, index, False, &record)
            if fault != FINE:
                break
            ids = names = 0
            found = -1
            name = NULL
            name_size = -1
            for turn in range(record.headers):
                fault = _header(&cursor, &wanted, &header)
                if fault != FINE:
                    break
                if header.is_id:
                    ids += ids < 2
                    found = _id_of(cursor.data + header.value_at, header.value_size)
                elif header.is_name:
                    names += names < 2
                    name = cursor.data + header.value_at
                    name_size = header.value_size
            if fault != FINE:
                break
            if cursor.at != record.end:
                fault = TOO_LONG
                break
            index += 1
            if not low <= record.offset_delta <= high:
                continue
            is_bad = ids > 1 or (ids == 1 and found < 0)
            if names == 1 and _is_same(its_name, name, name_size):
                is_new = False
            elif names == 1 and _is_name(name, name_size):
                is_new = True
            else:
                is_bad = is_bad or names > 0
                names = 0
                is_new = its_name is not None
            if not is_bad:
                is_new = is_new or its_bad == its_records or (
                    its_records - its_ids - its_bad > 0 or found <= last_id if ids else its_ids > 0
                )
            if is_new or not its_records:
                if its_records:
                    done.append((its_name, its_records, its_ids, its_bad, first_id, last_id, first_delta, last_delta,
                                 first_time, last_time))
                its_name = PyBytes_FromStringAndSize(<const char*>name, name_size) if names else None
                its_records = its_ids = its_bad = 0
                first_id = last_id = -1
                first_delta = record.offset_delta
                first_time = record.timestamp_delta
            its_records += 1
            last_delta = record.offset_delta
            last_time = record.timestamp_delta
            if is_bad:
                its_bad += 1
            elif ids:
                first_id = first_id if its_ids else found
                last_id = found
                its_ids += 1
        if fault == FINE and cursor.at != view.len:
            fault = BEHIND
    finally:
        PyBuffer_Release(&view)
    if fault != FINE:
        pure.refuse(fault, index)
    if its_records:
        done.append((its_name, its_records, its_ids, its_bad, first_id, last_id, first_delta, last_delta,
                     first_time, last_time))
    return done


cdef inline object _bytes_or_none(Cursor* cursor, Py_ssize_t at, int32_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char*>cursor.data + at, size)


def unpack(
    object records, Py_ssize_t count, bytes id_header not None, bytes name_header not None, int32_t low, int32_t high,
    int wanted_fields, tuple into not None, int32_t most_headers
):
    cdef Py_buffer view
    cdef Cursor cursor
    cdef Record record
    cdef Header header
    cdef Wanted wanted
    cdef Py_ssize_t index = 0
    cdef Py_ssize_t headers_at
    cdef int32_t turn
    cdef int ids
    cdef int names
    cdef int64_t found
    cdef object name
    cdef bint is_plain
    cdef bint is_inside
    cdef int fault = FINE
    cdef list deltas = into[0]
    cdef list times = into[1]
    cdef list keys = into[2]
    cdef list values = into[3]
    cdef list header_counts = into[4]
    cdef list header_keys = into[5]
    cdef list header_values = into[6]
    cdef list sequence_ids = into[7]
    cdef list its_names = into[8]
    cdef list doubtful = into[9]
    _want(&wanted, id_header, name_header)
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        cursor.data = <const unsigned char*>view.buf
        cursor.at = 0
        if count <= 0:
            fault = NO_RECORDS
        while fault == FINE and index < count:
            fault = _begin(&cursor, view.len, index, False, &record)
            if fault != FINE:
                break
            is_inside = low <= record.offset_delta <= high
            headers_at = cursor.at
            ids = names = 0
            found = -1
            name = None
            is_plain = True
            for turn in range(record.headers):
                fault = _header(&cursor, &wanted, &header)
                if fault != FINE:
                    break
                if header.is_id:
                    ids += 1
                    found = _id_of(cursor.data + header.value_at, header.value_size)
                    is_plain = is_plain and ids == 1 and found >= 0
                elif header.is_name:
                    names += 1
                    is_plain = (
                        is_plain and names == 1 and _is_plain_name(cursor.data + header.value_at, header.value_size)
                    )
                    if is_plain and is_inside:
                        name = _bytes_or_none(&cursor, header.value_at, header.value_size)
                if is_inside and wanted_fields & HEADERS and turn < most_headers:
                    header_keys.append(_bytes_or_none(&cursor, header.key_at, header.key_size))
                    header_values.append(_bytes_or_none(&cursor, header.value_at, header.value_size))
            if fault != FINE:
                break
            if cursor.at != record.end:
                fault = TOO_LONG
                break
            index += 1
            if not is_inside:
                continue
            if not is_plain:
                cursor.at = headers_at
                doubtful.append((len(deltas), _values(&cursor, &wanted, record.headers)))
            deltas.append(record.offset_delta)
            times.append(record.timestamp_delta)
            if wanted_fields & KEY:
                keys.append(_bytes_or_none(&cursor, record.field_at[0], record.field_size[0]))
            if wanted_fields & VALUE:
                values.append(_bytes_or_none(&cursor, record.field_at[1], record.field_size[1]))
            if wanted_fields & HEADERS:
                header_counts.append(min(record.headers, most_headers))
            sequence_ids.append(found if is_plain and ids else None)
            its_names.append(name if is_plain else None)
        if fault == FINE and cursor.at != view.len:
            fault = BEHIND
    finally:
        PyBuffer_Release(&view)
    if fault != FINE:
        pure.refuse(fault, index)


cdef inline Py_ssize_t _put(unsigned char* out, Py_ssize_t at, uint32_t value) noexcept:
    """A value that is not negative as a zigzag varint; where it ends."""
    cdef uint64_t raw = <uint64_t>value << 1
    while raw > 0x7F:
        out[at] = <unsigned char>((raw & 0x7F) | 0x80)
        at += 1
        raw >>= 7
    out[at] = <unsigned char>raw
    return at + 1


cdef inline Py_ssize_t _behind(const unsigned char* data, Py_ssize_t at, Py_ssize_t end) noexcept:
    while at < end and data[at] >= 0x80:
        at += 1
    return at + 1


def renumber(object records, list places):
    cdef Py_buffer view
    cdef const unsigned char* data
    cdef unsigned char* out
    cdef bytearray made
    cdef Py_ssize_t most = 0
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t index, start, end, body, delta_at, rest_at, size
    cdef unsigned char delta[8]
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        data = <const unsigned char*>view.buf
        for place in places:
            start = place[0]
            end = place[1]
            if not 0 <= start < end <= view.len:
                raise IndexError("a record outside its section")
            most += end - start + MOST_ADDED
        made = bytearray(most)
        out = <unsigned char*><char*>made
        for index in range(len(places)):
            place = places[index]
            start = place[0]
            end = place[1]
            body = _behind(data, start, end)
            delta_at = _behind(data, body + 1, end)
            rest_at = _behind(data, delta_at, end)
            if rest_at > end:
                raise IndexError("a record outside its section")
            size = _put(delta, 0, <uint32_t>index)
            at = _put(out, at, <uint32_t>(delta_at - body + size + end - rest_at))
            memcpy(out + at, data + body, delta_at - body)
            at += delta_at - body
            memcpy(out + at, delta, size)
            at += size
            memcpy(out + at, data + rest_at, end - rest_at)
            at += end - rest_at
    finally:
        PyBuffer_Release(&view)
    del made[at:]
    return made


cdef void _want(Wanted* wanted, bytes id_header, bytes name_header) except *:
    """The names of the two headers; they outlive the walk, which holds the objects as arguments."""
    wanted.id = <const unsigned char*><const char*>id_header
    wanted.id_size = len(id_header)
    wanted.name = <const unsigned char*><const char*>name_header
    wanted.name_size = len(name_header)


include "_produce.pxi"
include "_fetch.pxi"
