// Package memory keeps subcommands small.
package memory

import (
	"os"
	"runtime/debug"
)

// Limit has garbage collected whenever the heap has grown by percent of what is in use, where Go's usual is 100, and harder when the process
// comes to have bytes; 0 for no such limit. GOGC and GOMEMLIMIT in the environment go before.
func Limit(percent int, bytes int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" && bytes > 0 {
		debug.SetMemoryLimit(bytes)
	}
}
