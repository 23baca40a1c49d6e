package process

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	tail := " S 1 10 10 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 98765 1000 200"
	tests := []struct {
		name      string
		stat      string
		wantState string
		wantTicks uint64
		wantErr   bool
	}{
		{name: "plain name", stat: "10 (etcd)" + tail, wantState: "S", wantTicks: 98765},
		{name: "name with blanks and parentheses", stat: "10 (a) b) (c)" + tail, wantState: "S", wantTicks: 98765},
		{name: "no name", stat: "10 etcd S 1", wantErr: true},
		{name: "cut off", stat: "10 (etcd) S 1 10", wantErr: true},
		{name: "start time is no number", stat: "10 (etcd) S 1 10 10 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 soon 1000", wantErr: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			state, ticks, err := parseStat([]byte(test.stat))
			if (err != nil) != test.wantErr {
				t.Fatalf("error = %v, want one: %t", err, test.wantErr)
			}
			if state != test.wantState || ticks != test.wantTicks {
				t.Errorf("got state %q and start %d, want %q and %d", state, ticks, test.wantState, test.wantTicks)
			}
		})
	}
}

func TestIdentityOfThisProcessIsAlive(t *testing.T) {
	id, err := Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !id.Alive() {
		t.Error("this process is not alive")
	}
}

func TestAnotherProcessWithTheSameIDIsNotTaken(t *testing.T) {
	id, err := Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]Identity{
		"started at another time": {PID: id.PID, StartTicks: id.StartTicks + 1, BootID: id.BootID},
		"of another boot":         {PID: id.PID, StartTicks: id.StartTicks, BootID: "other"},
	} {
		if other.Alive() {
			t.Errorf("a process %s counts as alive", name)
		}
		// If Stop took it for ours, this test would end here.
		if Stop(other, time.Second) {
			t.Errorf("a process %s was killed", name)
		}
	}
}

func TestZombieIsGone(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	for range 200 {
		if _, err := Identify(cmd.Process.Pid); errors.Is(err, ErrGone) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("a process that has ended and was not collected still has an identity")
}
