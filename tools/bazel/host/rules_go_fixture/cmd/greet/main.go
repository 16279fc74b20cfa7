// Greet greets the person that its argument names.
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
