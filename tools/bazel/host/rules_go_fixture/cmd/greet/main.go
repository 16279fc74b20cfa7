// Greet greets whoever it is told of.
package main

import (
	"fmt"
	"os"
	"strings"

	"forebay.example/fixture/greeting"
)

func main() {
	fmt.Println(strings.Join(greeting.Words(os.Args[1]), " "))
}
