"""The decision service: decide, learn, log, recover, over HTTP and on a page.

Needs the extra ``service``; nothing else in the package imports it.
"""
