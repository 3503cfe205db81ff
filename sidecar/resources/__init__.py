"""Free strings and reader claims: the owners of resources that no log can fence, and their queues (Kafka wiki, "Single
Reader/Writer"; own APIs 1000, 1001 and 1004).

One node at a time *coordinates* all of them; every grant is a record in the ownership topic under that node's epoch.
The room `exclusive` handles topics and partitions for writing.
"""
