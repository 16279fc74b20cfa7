#!/bin/sh
# The program says what its library makes.
[ "$("$1" Ada)" = "good morning Ada" ]
