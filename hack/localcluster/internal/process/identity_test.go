package process

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"
)

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
