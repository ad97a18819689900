def page(found, report):
    return ""
