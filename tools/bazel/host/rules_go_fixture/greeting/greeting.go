// Package greeting is a library with something to embed and something to test.
package greeting

import (
	_ "embed"
	"strings"
)

//go:embed words.txt
var words string

// Words returns the words of a greeting to somebody.
func Words(name string) []string {
	return append(strings.Fields(words), name)
}
