"""Who may have a resource: what topics (`exclusive`), strings and reader claims (`resources`) have in common. Pure."""
