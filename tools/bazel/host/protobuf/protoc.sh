#!/bin/sh
# The machine's protoc.
exec protoc "$@"
