package redisqueue

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed scripts/*.lua
var files embed.FS

// script is one Lua script of an epoch.
type script struct{ text, sha string }

// The scripts in Redis. Each runs only in its own epoch.
var guarded = []string{"enqueue", "lease", "heartbeat", "adopt", "remove", "release", "tick", "share"}

// unguarded are those by which an epoch is begun.
var unguarded = []string{"begin", "load", "commit"}

func read(name string) string {
	text, err := files.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(text)
}

// scriptsOf an epoch, by name.
func scriptsOf(epoch string) map[string]script {
	all := map[string]script{}
	add := func(name, text string) {
		text = strings.ReplaceAll(text, "@EPOCH@", epoch)
		sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
		all[name] = script{text: text, sha: hex.EncodeToString(sum[:])}
	}
	for _, name := range guarded {
		add(name, read("common")+read("guard")+read(name))
	}
	for _, name := range unguarded {
		add(name, read("common")+read(name))
	}
	return all
}
