"""Free strings and reader claims: owners of what no log can fence, and their queues (Kafka wiki, "Single
Reader/Writer"; own APIs 1000, 1001 and 1004).

One node at a time *coordinates* all of them; every grant is a record of the ownership topic under its epoch. Topics and
partitions for writing are the room `exclusive`'s.
"""
