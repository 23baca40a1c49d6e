package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestStartRecordsAndStopEnds(t *testing.T) {
	dir := t.TempDir()
	table := NewTable(filepath.Join(dir, "processes"))
	record, err := Start(Spec{
		Name: "sleeper", Program: "/bin/sleep", Args: []string{"60"}, // a shell would have no environment for a moment, as it becomes another program
		Log: filepath.Join(dir, "logs", "sleeper.log"), Owner: dir,
	}, table)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Kill(record.Identity) })

	got, ok, err := table.Get("sleeper")
	if err != nil || !ok {
		t.Fatalf("record: found %t, error %v", ok, err)
	}
	if !reflect.DeepEqual(got, record) {
		t.Errorf("recorded %+v, want %+v", got, record)
	}
	if marked := Marked(dir); len(marked) != 1 || marked[0] != record.Identity {
		t.Errorf("marked processes are %v, want only %v", marked, record.Identity)
	}
	if killed := Stop(record.Identity, 5*time.Second); killed {
		t.Error("a process that ends on SIGTERM was killed")
	}
	if record.Alive() {
		t.Error("the process still runs after Stop")
	}
	if marked := Marked(dir); len(marked) != 0 {
		t.Errorf("marked processes after Stop: %v", marked)
	}
}

func TestStopKillsWhatDoesNotListen(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "stubborn.log")
	record, err := Start(Spec{
		Name: "stubborn", Program: "/bin/sh", Args: []string{"-c", "trap '' TERM; echo deaf; while :; do sleep 0.05; done"},
		Log: log, Owner: dir,
	}, NewTable(dir))
	if err != nil {
		t.Fatal(err)
	}
	for range 200 { // until the trap is set
		if content, _ := os.ReadFile(log); strings.Contains(string(content), "deaf") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if killed := StopAll([]Record{record}, 100*time.Millisecond); !reflect.DeepEqual(killed, []string{"stubborn"}) {
		t.Errorf("killed %v, want stubborn", killed)
	}
	if record.Alive() {
		t.Error("the process still runs")
	}
}

func TestTable(t *testing.T) {
	table := NewTable(filepath.Join(t.TempDir(), "processes"))
	if records, err := table.List(); err != nil || len(records) != 0 {
		t.Fatalf("an empty table has %v, error %v", records, err)
	}
	for _, name := range []string{"b", "a"} {
		if err := table.Save(Record{Name: name, Identity: Identity{PID: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(table.dir, "cut.json"), []byte(`{"name": "cu`), 0o644); err != nil {
		t.Fatal(err)
	}
	records, err := table.List()
	if err != nil || len(records) != 2 || records[0].Name != "a" || records[1].Name != "b" {
		t.Errorf("got %v, error %v; want a and b, and the half written record left out", records, err)
	}
	if err := table.Remove("a"); err != nil {
		t.Error(err)
	}
	if err := table.Remove("a"); err != nil {
		t.Errorf("removing what is not there: %v", err)
	}
}

func TestMarkedFindsExactlyTheOwnersProcesses(t *testing.T) {
	owner := t.TempDir()
	cmd := exec.Command("sleep", "60")
	cmd.Env = append(os.Environ(), "A=1", MarkVariable+"="+owner, "B=2")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for other, expected := range map[string]int{owner: 1, owner[:len(owner)-1]: 0, owner + "/2": 0} {
		if got := Marked(other); len(got) != expected {
			t.Errorf("%s: got %v, want %d", other, got, expected)
		}
	}
}
