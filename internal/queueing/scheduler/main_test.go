package scheduler_test

import (
	"flag"
	"os"
	"testing"
)

// The rules meet one another in rare worlds only: look at more of them than is rapid's default.
const worlds = "2000"

func TestMain(m *testing.M) {
	checks := flag.Lookup("rapid.checks")
	usual := checks.DefValue
	flag.Parse()
	if checks.Value.String() == usual {
		if err := flag.Set(checks.Name, worlds); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
