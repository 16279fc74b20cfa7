// Package greeting is a library with a file to embed and a function to test.
package greeting

import (
	_ "embed"
	"strings"
)

//go:embed words.txt
var words string

// Words returns the words of a greeting to a person.
func Words(name string) []string {
	return append(strings.Fields(words), name)
}
