package redisqueue

import (
	"embed"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var files embed.FS

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
func scriptsOf(epoch string) map[string]*redis.Script {
	all := map[string]*redis.Script{}
	add := func(name, text string) { all[name] = redis.NewScript(strings.ReplaceAll(text, "@EPOCH@", epoch)) }
	for _, name := range guarded {
		add(name, read("common")+read("guard")+read(name))
	}
	for _, name := range unguarded {
		add(name, read("common")+read(name))
	}
	return all
}
