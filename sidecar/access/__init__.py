"""Rules that topics (`exclusive`), free strings and reader claims (`resources`) share about who may own them. Pure."""
