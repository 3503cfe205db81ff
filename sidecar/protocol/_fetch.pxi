# Fetch, compiled: part of `_records.pyx`, behind `_produce.pxi`, whose rules hold here too. Twins, in
# `sidecar.protocol.fetch`: `walk`, and for `is_plain_fetch` a look at what `walk_answer` finds.

cdef enum:
    FETCH_FLEXIBLE = 12
    FETCH_WITH_SESSIONS = 7
    FETCH_WITH_RACKS = 11
    FETCH_WITH_STATE = 15
    FETCH_WITH_START = 5
    FETCH_WITH_EPOCHS = 9
    ABORTED_BYTES = 16
    NOT_USUAL = -2


cdef inline Py_ssize_t _compact(const unsigned char* data, Py_ssize_t* at, Py_ssize_t end) noexcept nogil:
    """A length that is written as one more, -1 for null; `NOT_USUAL` where it runs out or is longer than any."""
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef unsigned char byte
    while at[0] < end and shift < 7 * VARINT_BYTES:
        byte = data[at[0]]
        at[0] += 1
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return <Py_ssize_t>value - 1 if not value >> 32 else <Py_ssize_t>NOT_USUAL
        shift += 7
    return NOT_USUAL


cdef inline Py_ssize_t _count(const unsigned char* data, Py_ssize_t* at, Py_ssize_t end, bint flexible) noexcept nogil:
    """The length of a list or of bytes, -1 for null; `NOT_USUAL` where it is not there or below."""
    cdef Py_ssize_t found
    if flexible:
        return _compact(data, at, end)
    if end - at[0] < 4:
        return NOT_USUAL
    found = _i32(data + at[0])
    at[0] += 4
    return found if found >= -1 else <Py_ssize_t>NOT_USUAL


def walk_fetch(
    object buffer, Py_ssize_t body, Py_ssize_t end, int version, dict names, object part, object request, Py_ssize_t most
):
    """A `request` of `part`s; None where the request has no topic, something to forget, tags, a topic whose id is not
    in `names`, more than `most` topics and partitions, or is malformed.
    """
    cdef Py_buffer view
    cdef object found = None
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if 0 <= body and end <= view.len:
            found = _walk_fetch(<const unsigned char*>view.buf, body, end, version, names, part, request, most)
    finally:
        PyBuffer_Release(&view)
    return found


cdef object _walk_fetch(
    const unsigned char* data,
    Py_ssize_t at,
    Py_ssize_t end,
    int version,
    dict names,
    object part,
    object request,
    Py_ssize_t most,
):
    cdef bint flexible = version >= FETCH_FLEXIBLE
    cdef bint by_id = version >= FIRST_BY_ID
    cdef int32_t replica = -1, max_wait, min_bytes, max_bytes, session_id = 0, session_epoch = -1
    cdef int isolation
    cdef Py_ssize_t session = -1, topics, partitions, length, start
    cdef Py_ssize_t element = 16
    cdef Py_ssize_t rack = 0
    cdef object topic, topic_id
    cdef list parts = []
    cdef dict ids = {} if by_id else None
    if version >= FETCH_WITH_EPOCHS:
        element += 4
    if flexible:
        element += 4
    if version >= FETCH_WITH_START:
        element += 8
    if end - at < 1 + 4 + 13 + 8:
        return None
    if flexible:
        if data[at]:
            return None
        at += 1
    if version < FETCH_WITH_STATE:
        replica = _i32(data + at)
        at += 4
    max_wait = _i32(data + at)
    min_bytes = _i32(data + at + 4)
    max_bytes = _i32(data + at + 8)
    isolation = <signed char>data[at + 12]
    at += 13
    if version >= FETCH_WITH_SESSIONS:
        session = at
        session_id = _i32(data + at)
        session_epoch = _i32(data + at + 4)
        at += 8
    topics = _count(data, &at, end, flexible)
    if topics <= 0 or topics > most:
        return None
    most -= topics
    while topics:
        topics -= 1
        if by_id:
            length = ID_BYTES
        elif flexible:
            length = _compact(data, &at, end)
        else:
            if end - at < 2:
                return None
            length = _i16(data + at)
            at += 2
        if length < 0 or end - at < length:
            return None
        topic = PyBytes_FromStringAndSize(<const char*>data + at, length)
        at += length
        if by_id:
            topic_id = topic
            topic = names.get(topic_id)
            if not topic:
                return None
            ids[topic] = topic_id
        partitions = _count(data, &at, end, flexible)
        if partitions < 0 or partitions > most:
            return None
        most -= partitions
        while partitions:
            partitions -= 1
            start = at
            if end - at < element + flexible:
                return None
            at += element
            if flexible:
                if data[at]:
                    return None
                at += 1
            parts.append(_new_tuple(part, (topic, _i32(data + start), start, at)))
        if flexible:
            if at >= end or data[at]:
                return None
            at += 1
    if version >= FETCH_WITH_SESSIONS and _count(data, &at, end, flexible) != 0:
        return None
    if version >= FETCH_WITH_RACKS:
        if flexible:
            rack = _compact(data, &at, end)
        else:
            if end - at < 2:
                return None
            rack = _i16(data + at)
            at += 2
        if rack == NOT_USUAL or rack > end - at:
            return None
        if rack > 0:
            at += rack
    if flexible:
        if at >= end or data[at]:
            return None
        at += 1
    if at != end:
        return None
    return _new_tuple(
        request,
        (
            max_wait, min_bytes, max_bytes, isolation, session_id, session_epoch, session, replica, rack > 0, parts, ids,
        ),
    )


def is_plain_fetch(object buffer, Py_ssize_t start, Py_ssize_t end, int version):
    """Whether an answer frame has no error, no word of another leader, no tag and nothing behind its end. False leaves
    it to the twin.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        return 0 <= start and end <= view.len and _is_plain_fetch(<const unsigned char*>view.buf, start, end, version)
    finally:
        PyBuffer_Release(&view)


cdef bint _is_plain_fetch(const unsigned char* data, Py_ssize_t at, Py_ssize_t end, int version) noexcept nogil:
    cdef bint flexible = version >= FETCH_FLEXIBLE
    cdef Py_ssize_t fixed = 30 if version >= FETCH_WITH_START else 22
    cdef Py_ssize_t topics, partitions, length, each
    if end - at < 8 + flexible + 4 + (6 if version >= FETCH_WITH_SESSIONS else 0):
        return False
    at += 8
    if flexible:
        if data[at]:
            return False
        at += 1
    at += 4
    if version >= FETCH_WITH_SESSIONS:
        if data[at] or data[at + 1]:
            return False
        at += 6
    topics = _count(data, &at, end, flexible)
    if topics < 0 or topics > end - at:
        return False
    while topics:
        topics -= 1
        if version >= FIRST_BY_ID:
            length = ID_BYTES
        elif flexible:
            length = _compact(data, &at, end)
        else:
            if end - at < 2:
                return False
            length = _i16(data + at)
            at += 2
        if length < 0 or end - at < length:
            return False
        at += length
        partitions = _count(data, &at, end, flexible)
        if partitions < 0 or partitions > (end - at) // fixed:
            return False
        while partitions:
            partitions -= 1
            if end - at < fixed or data[at + 4] or data[at + 5]:
                return False
            at += fixed
            length = _count(data, &at, end, flexible)
            each = ABORTED_BYTES + flexible
            if length == NOT_USUAL or length > (end - at) // each:
                return False
            while length > 0:
                length -= 1
                if flexible and data[at + ABORTED_BYTES]:
                    return False
                at += each
            if version >= FETCH_WITH_RACKS:
                if end - at < 4:
                    return False
                at += 4
            length = _count(data, &at, end, flexible)
            if length == NOT_USUAL or length > end - at:
                return False
            if length > 0:
                at += length
            if flexible:
                if at >= end or data[at]:
                    return False
                at += 1
        if flexible:
            if at >= end or data[at]:
                return False
            at += 1
    if flexible:
        if at >= end or data[at]:
            return False
        at += 1
    return at == end
