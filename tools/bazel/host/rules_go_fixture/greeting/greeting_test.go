// Tests of greeting: its words, a file next to it, a third-party module.

package greeting

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWordsGreetTheName(t *testing.T) {
	if difference := cmp.Diff([]string{"good", "morning", "Ada"}, Words("Ada")); difference != "" {
		t.Error(difference)
	}
}

func TestWorkingDirectoryIsThePackage(t *testing.T) {
	if _, err := os.Stat("testdata/name.txt"); err != nil {
		t.Error(err)
	}
}
