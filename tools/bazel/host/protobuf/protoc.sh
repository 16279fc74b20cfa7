#!/bin/sh
# The protoc of the machine.
exec protoc "$@"
