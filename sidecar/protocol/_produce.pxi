# Produce, compiled: part of `_records.pyx`. Each function does what its twin in Python does for the form that clients
# and brokers nearly always send, and returns None for any other form, right or wrong: then the twin looks at it. Twins:
# `walk`, `appended`, `all_appended` and `rename_answer` of `sidecar.protocol.produce`, `read_numbers` and `stamp` of
# `sidecar.protocol.batch`.
#
# Every position is compared with what is left before a byte is read there.

from crc32c import crc32c as _crc32c

cdef enum:
    FIRST_BY_ID = 13
    FIRST_FLEXIBLE = 9
    FIRST_WITH_START = 5
    FIRST_WITH_MESSAGES = 8
    ID_BYTES = 16
    SHORT = 0x7F  # the largest length, plus one, that takes one byte
    VARINT_BYTES = 5
    HEAD_BYTES = 14  # length prefix, API key, version, correlation id, length of the client id

cdef enum:
    # Places in a batch: `sidecar.protocol.batch`.
    LENGTH_AT = 8
    MAGIC_AT = 16
    CRC_AT = 17
    CRC_FROM = 21
    ATTRIBUTES_AT = 21
    LAST_DELTA_AT = 23
    BASE_TIME_AT = 27
    MAX_TIME_AT = 35
    PRODUCER_AT = 43
    EPOCH_AT = 51
    SEQUENCE_AT = 53
    COUNT_AT = 57
    RECORDS_AT = 61
    CODEC = 0x07
    SPECIAL = 0x30

cdef object _new_tuple = tuple.__new__
cdef object _part = None
cdef object _request = None


def produce_types(object part, object request):
    """What `usual_produces` makes: see `sidecar.protocol.produce`."""
    global _part, _request
    _part, _request = part, request


cdef inline int _i16(const unsigned char* at) noexcept nogil:
    cdef int found = (at[0] << 8) | at[1]
    return found - 0x10000 if found > 0x7FFF else found


cdef inline uint32_t _u32(const unsigned char* at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline int32_t _i32(const unsigned char* at) noexcept nogil:
    return <int32_t>_u32(at)


cdef inline int64_t _i64(const unsigned char* at) noexcept nogil:
    return <int64_t>((<uint64_t>_u32(at) << 32) | _u32(at + 4))


cdef inline void _put_32(unsigned char* at, uint32_t value) noexcept nogil:
    at[0] = value >> 24
    at[1] = (value >> 16) & 0xFF
    at[2] = (value >> 8) & 0xFF
    at[3] = value & 0xFF


def walk_produce(
    object buffer, Py_ssize_t body, Py_ssize_t end, int version, dict names, object part, object request, Py_ssize_t most
):
    """A `request` of `part`s; None where the request has an empty list, a transactional id, tags, a topic whose id is
    not in `names`, below version 9 more than `most` partitions, or is malformed.
    """
    cdef Py_buffer view
    cdef object found = None
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if 0 <= body and end <= view.len:
            if version < FIRST_FLEXIBLE:
                found = _walk_classic(<const unsigned char*>view.buf, body, end, part, request, most)
            else:
                found = _walk_flexible(
                    <const unsigned char*>view.buf, body, end, names if version >= FIRST_BY_ID else None, part, request
                )
    finally:
        PyBuffer_Release(&view)
    return found


cdef object _walk_classic(
    const unsigned char* data, Py_ssize_t at, Py_ssize_t end, object part, object request, Py_ssize_t most
):
    cdef int32_t topics, partitions, index, size
    cdef int length, acks
    cdef int32_t timeout_ms
    cdef Py_ssize_t start
    cdef bytes topic
    cdef list parts = []
    if end - at < 12 or _i16(data + at) != -1:
        return None
    acks = _i16(data + at + 2)
    timeout_ms = _i32(data + at + 4)
    topics = _i32(data + at + 8)
    at += 12
    if topics <= 0 or topics > most:
        return None
    while topics:
        topics -= 1
        if end - at < 2:
            return None
        length = _i16(data + at)
        at += 2
        if length < 0 or end - at < length + 4:
            return None
        topic = PyBytes_FromStringAndSize(<const char*>data + at, length)
        partitions = _i32(data + at + length)
        at += length + 4
        if partitions <= 0 or partitions > most - len(parts):
            return None
        while partitions:
            partitions -= 1
            if end - at < 8:
                return None
            index = _i32(data + at)
            size = _i32(data + at + 4)
            start = at + 8
            if size < -1 or size > end - start:
                return None
            at = start + size if size > 0 else start
            parts.append(_new_tuple(part, (topic, index, start, at)))
    return _new_tuple(request, (None, acks, timeout_ms, parts, None)) if at == end else None


cdef object _walk_flexible(
    const unsigned char* data, Py_ssize_t at, Py_ssize_t end, dict names, object part, object request
):
    cdef int topics, partitions, length, shift
    cdef int acks
    cdef int32_t timeout_ms, index
    cdef uint64_t size
    cdef unsigned char byte
    cdef Py_ssize_t start
    cdef object topic, topic_id
    cdef list parts = []
    cdef dict ids = None if names is None else {}
    if end - at < 9 or data[at] or data[at + 1]:
        return None
    acks = _i16(data + at + 2)
    timeout_ms = _i32(data + at + 4)
    topics = data[at + 8]
    at += 9
    if topics < 2 or topics > SHORT:
        return None
    while topics > 1:
        topics -= 1
        if names is None:
            if at >= end:
                return None
            length = data[at] - 1
            at += 1
            if length < 0 or length >= SHORT or end - at <= length:
                return None
            topic = PyBytes_FromStringAndSize(<const char*>data + at, length)
        else:
            length = ID_BYTES
            if end - at <= length:
                return None
            topic_id = PyBytes_FromStringAndSize(<const char*>data + at, length)
            topic = names.get(topic_id)
            if not topic:
                return None
            ids[topic] = topic_id
        at += length
        partitions = data[at]
        at += 1
        if partitions < 2 or partitions > SHORT:
            return None
        while partitions > 1:
            partitions -= 1
            if end - at < 5:
                return None
            index = _i32(data + at)
            at += 4
            size = 0
            shift = 0
            while True:
                if at >= end or shift >= 7 * VARINT_BYTES:
                    return None
                byte = data[at]
                at += 1
                size |= <uint64_t>(byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            start = at
            if size:
                if size - 1 > <uint64_t>(end - at):
                    return None
                at += size - 1
            if at >= end or data[at]:
                return None
            parts.append(_new_tuple(part, (topic, index, start, at)))
            at += 1
        if at >= end or data[at]:
            return None
        at += 1
    if at != end - 1 or data[at]:
        return None
    return _new_tuple(request, (None, acks, timeout_ms, parts, ids))


def usual_produces(
    object buffer, Py_ssize_t at, Py_ssize_t end, bytes client_id not None, int version, dict names not None,
    dict routes not None, Py_ssize_t largest, Py_ssize_t frames, Py_ssize_t elements, Py_ssize_t most,
):
    """See `sidecar.protocol.usual_produce.Requests`."""
    cdef Py_buffer view
    cdef const unsigned char* data
    cdef Py_ssize_t size, body
    cdef Py_ssize_t id_size = len(client_id)
    cdef const char* id_bytes = client_id
    cdef object fields, route
    cdef list parts
    cdef list usual = []
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if at < 0 or end > view.len:
            return usual
        data = <const unsigned char*>view.buf
        while frames > 0 and elements >= 0 and end - at >= HEAD_BYTES + id_size:
            size = <Py_ssize_t>_i32(data + at) + 4
            if size < HEAD_BYTES + id_size or size > end - at or size - 4 > largest:
                break
            if (
                data[at + 4] or data[at + 5]
                or _i16(data + at + 6) != version
                or _i16(data + at + 12) != id_size
                or memcmp(data + at + HEAD_BYTES, id_bytes, id_size)
            ):
                break
            body = at + HEAD_BYTES + id_size
            if version < FIRST_FLEXIBLE:
                fields = _walk_classic(data, body, at + size, _part, _request, most)
            else:
                fields = _walk_flexible(
                    data, body, at + size, names if version >= FIRST_BY_ID else None, _part, _request
                )
            if fields is None or not fields[1]:
                break  # of another form, or without an answer
            parts = <list>fields[3]
            route = _route_of_all(parts, routes) if len(parts) <= most else None
            if route is None:
                break
            usual.append((at, at + size, _i32(data + at + 8), route, parts, fields[4], _signatures(data, parts)))
            if len(parts) > 1:
                elements -= len(parts)
            frames -= 1
            at += size
    finally:
        PyBuffer_Release(&view)
    return usual


cdef object _route_of_all(list parts, dict routes):
    """The route of all partitions; None where there are several, where one is not known, has no batch, or is named
    twice.
    """
    cdef object common = None
    cdef object route
    cdef object of_topic
    cdef object part
    for part in parts:
        of_topic = routes.get(part[0])
        if of_topic is None or part[2] == part[3]:
            return None
        route = (<dict?>of_topic).get(part[1])
        if route is None or (common is not None and route is not common):
            return None
        common = route
    if len(parts) > 1 and len({(part[0], part[1]) for part in parts}) != len(parts):
        return None
    return common


cdef list _signatures(const unsigned char* data, list parts):
    """As `sidecar.gateway.gaps.signature`, of each batch."""
    cdef list kept = []
    cdef object part
    cdef Py_ssize_t start, stop
    for part in parts:
        start = part[2]
        stop = part[3]
        if stop > start + COUNT_AT:
            stop = start + COUNT_AT
        start += MAGIC_AT
        kept.append(PyBytes_FromStringAndSize(<const char*>data + start, stop - start) if stop > start else b"")
    return kept


def acknowledged(object buffer, Py_ssize_t at, Py_ssize_t end, object replies, object exchanges, object kind):
    """See `sidecar.protocol.usual_produce.Answers`."""
    cdef Py_buffer view
    cdef const unsigned char* data
    cdef Py_ssize_t size
    cdef Py_ssize_t index = 0
    cdef Py_ssize_t most = min(len(replies), len(exchanges))
    cdef object reply
    cdef list sizes = []
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if at < 0 or end > view.len:
            return sizes
        data = <const unsigned char*>view.buf
        while index < most and end - at >= 8:
            size = <Py_ssize_t>_i32(data + at) + 4
            if size < 8 or size > end - at:
                break
            reply = replies[index]
            if (
                type(reply) is not kind
                or exchanges[index] is not reply
                or <int64_t>_i32(data + at + 4) != <int64_t>reply.correlation_id
                or not _read_appended(data, at, at + size, reply.version, len(reply.parts), None)
            ):
                break
            sizes.append(size)
            index += 1
            at += size
    finally:
        PyBuffer_Release(&view)
    return sizes


cdef inline Py_ssize_t _varint_bytes(Py_ssize_t value) noexcept nogil:
    cdef Py_ssize_t found = 0
    while value:
        value >>= 7
        found += 1
    return found


def bare_bytes(int version, bytes topic not None, list parts not None):
    """The same as its twin."""
    cdef Py_ssize_t total = 0
    cdef Py_ssize_t size
    cdef Py_ssize_t count = len(parts)
    cdef object part
    for part in parts:
        size = <Py_ssize_t>part[3] - <Py_ssize_t>part[2]
        total += size + (8 if version < FIRST_FLEXIBLE else 5 + _varint_bytes(size + 1))
    if version < FIRST_FLEXIBLE:
        return 18 + len(topic) + total
    size = ID_BYTES if version >= FIRST_BY_ID else len(topic) + _varint_bytes(len(topic) + 1)
    return 11 + size + _varint_bytes(count + 1) + total


cdef inline Py_ssize_t _answer_bytes(int version) noexcept nogil:
    """What a partition takes in an answer that carries no messages."""
    if version >= FIRST_FLEXIBLE:
        return 33
    return 36 if version >= FIRST_WITH_MESSAGES else 30 if version >= FIRST_WITH_START else 22


cdef bint _read_appended(
    const unsigned char* data, Py_ssize_t start, Py_ssize_t end, int version, Py_ssize_t expected, list found
) except -1:
    """Whether an answer names `expected` partitions in the usual form, without any error; appends what it says of each
    to `found`, if that is a list.
    """
    cdef int topics_byte, length
    cdef int32_t topics, partitions
    cdef bint flexible = version >= FIRST_FLEXIBLE
    cdef Py_ssize_t size = _answer_bytes(version)
    cdef Py_ssize_t at
    if end - start < 14:
        return False
    if flexible:
        topics_byte = data[start + 9]
        topics = topics_byte - 1
        if data[start + 8] or topics < 0 or topics >= SHORT:
            return False
        at = start + 10
    else:
        topics = _i32(data + start + 8)
        at = start + 12
    while topics > 0:
        topics -= 1
        if flexible:
            if version >= FIRST_BY_ID:
                length = ID_BYTES
            else:
                if at >= end:
                    return False
                length = data[at] - 1
                at += 1
                if length < 0 or length >= SHORT:
                    return False
            if end - at <= length:
                return False
            at += length
            partitions = data[at] - 1
            at += 1
            if partitions < 0 or partitions >= SHORT:
                return False
        else:
            if end - at < 2:
                return False
            length = _i16(data + at)
            at += 2
            if length < 0 or end - at < length + 4:
                return False
            partitions = _i32(data + at + length)
            at += length + 4
            if partitions < 0:
                return False
        if partitions > expected or (end - at) // size < partitions:
            return False
        expected -= partitions
        while partitions:
            partitions -= 1
            if data[at + 4] or data[at + 5]:
                return False
            if version >= FIRST_FLEXIBLE:
                if data[at + 30] != 1 or data[at + 31] or data[at + 32]:
                    return False
            elif version >= FIRST_WITH_MESSAGES:
                if _u32(data + at + 30) or _i16(data + at + 34) != -1:
                    return False
            if found is not None:
                found.append((
                    _i32(data + at), _i64(data + at + 6), _i64(data + at + 14),
                    _i64(data + at + 22) if version >= FIRST_WITH_START else -1,
                ))
            at += size
        if flexible:
            if at >= end or data[at]:
                return False
            at += 1
    if expected:
        return False
    return at + 4 + flexible == end and not (flexible and data[end - 1])


def all_appended(object buffer, Py_ssize_t start, Py_ssize_t end, int version, Py_ssize_t expected):
    """True where the answer says so in the usual form; else False, and its twin decides."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        return 0 <= start and end <= view.len and _read_appended(
            <const unsigned char*>view.buf, start, end, version, expected, None
        )
    finally:
        PyBuffer_Release(&view)


def appended(object buffer, Py_ssize_t start, Py_ssize_t end, int version, Py_ssize_t expected):
    """(partition, base offset, append time, log start) of each; None where `all_appended` is False."""
    cdef Py_buffer view
    cdef list found = []
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if 0 <= start and end <= view.len and _read_appended(
            <const unsigned char*>view.buf, start, end, version, expected, found
        ):
            return found
        return None
    finally:
        PyBuffer_Release(&view)


def read_numbers(object batch, object numbers):
    """What a sound batch says of its producer, as `numbers`; None for any other, and where its newest time takes a
    further look.
    """
    cdef Py_buffer view
    cdef const unsigned char* data
    cdef int attributes, epoch
    cdef int32_t records, sequence
    cdef uint32_t crc, first
    cdef int64_t producer_id, base, newest
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        if view.len < RECORDS_AT + 4:
            return None
        data = <const unsigned char*>view.buf
        attributes = _i16(data + ATTRIBUTES_AT)
        records = _i32(data + COUNT_AT)
        producer_id = _i64(data + PRODUCER_AT)
        epoch = _i16(data + EPOCH_AT)
        sequence = _i32(data + SEQUENCE_AT)
        newest = _i64(data + MAX_TIME_AT)
        crc = _u32(data + CRC_AT)
        first = _u32(data + RECORDS_AT)
        if (
            data[MAGIC_AT] != 2
            or <int64_t>_i32(data + LENGTH_AT) + 12 != view.len
            or attributes & SPECIAL
            or records <= 0
            or _i32(data + LAST_DELTA_AT) != records - 1
            or (producer_id >= 0 and (epoch < 0 or sequence < 0))
        ):
            return None
        if not attributes & CODEC:
            if not (first & 0x808000FF == 0x80000000 or not first & 0x8000FF00):
                return None  # a long record, or its time is not the base timestamp
            base = _i64(data + BASE_TIME_AT)
            if base < newest:
                newest = base
    finally:
        PyBuffer_Release(&view)
    if _crc32c(batch[CRC_FROM:]) != crc:
        return None
    return _new_tuple(numbers, (producer_id, epoch, sequence, records, newest))


def stamp(
    object buffer, Py_ssize_t start, Py_ssize_t size, int64_t producer_id, int16_t epoch, int32_t sequence
):
    """Raises ValueError for a batch without a header."""
    cdef Py_buffer view
    cdef unsigned char* data
    cdef object window
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        if start < 0 or size < RECORDS_AT or size > view.len - start:
            raise ValueError(f"a record batch of {size} bytes")
        data = <unsigned char*>view.buf + start
        _put_32(data + PRODUCER_AT, <uint32_t>(<uint64_t>producer_id >> 32))
        _put_32(data + PRODUCER_AT + 4, <uint32_t>producer_id)
        data[EPOCH_AT] = (epoch >> 8) & 0xFF
        data[EPOCH_AT + 1] = epoch & 0xFF
        _put_32(data + SEQUENCE_AT, <uint32_t>sequence)
        window = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
        _put_32(data + CRC_AT, <uint32_t>_crc32c(window[start + CRC_FROM : start + size]))
    finally:
        PyBuffer_Release(&view)


def rename_answer(object buffer, Py_ssize_t start, Py_ssize_t end, int version, int32_t correlation_id):
    """The same as its twin."""
    cdef Py_buffer view
    cdef unsigned char* data
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        if not 0 <= start <= end - 13 or end > view.len:
            raise ValueError(f"an answer of {end - start} bytes")
        data = <unsigned char*>view.buf
        _put_32(data + start + 4, <uint32_t>correlation_id)
        _put_32(data + end - (5 if version >= FIRST_FLEXIBLE else 4), 0)
    finally:
        PyBuffer_Release(&view)
