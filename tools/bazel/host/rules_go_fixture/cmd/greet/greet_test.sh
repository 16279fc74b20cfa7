#!/bin/sh
# The program prints its library's greeting.
[ "$("$1" Ada)" = "good morning Ada" ]
