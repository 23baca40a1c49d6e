package guest

import (
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"strings"
)

// socket is where the supervisor serves systemctl.
const socket = "/run/localcluster/systemctl.sock"

// Answer is what systemctl prints and exits with.
type Answer struct {
	Output string
	Code   int
}

// Systemctl is the part of systemctl that kubeadm and startup scripts need on a machine, where no systemd runs.
func Systemctl(args []string, out io.Writer) (code int, err error) {
	supervisor, err := rpc.Dial("unix", socket)
	if err != nil {
		return 1, err
	}
	defer supervisor.Close()
	var answer Answer
	if err := supervisor.Call("machine.Systemctl", args, &answer); err != nil {
		return 1, err
	}
	fmt.Fprint(out, answer.Output)
	return answer.Code, nil
}

// serve answers Systemctl in the background.
func (m *machine) serve() error {
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := rpc.NewServer()
	if err := server.RegisterName("machine", m); err != nil {
		return err
	}
	go server.Accept(listener)
	return nil
}

// Systemctl has the signature of a remote call.
func (m *machine) Systemctl(args []string, answer *Answer) error {
	*answer = m.systemctl(args)
	return nil
}

func (m *machine) systemctl(args []string) Answer {
	var words []string
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") { // --now, --no-pager and such
			words = append(words, arg)
		}
	}
	if len(words) == 0 {
		return Answer{"systemctl of a localcluster machine: daemon-reload, enable, disable, start, stop, restart, status, is-active, is-enabled\n", 1}
	}
	verb := words[0]
	if verb == "daemon-reload" {
		return Answer{}
	}
	if len(words) != 2 {
		return Answer{fmt.Sprintf("systemctl %s: want the name of one service\n", verb), 1}
	}
	name := strings.TrimSuffix(words[1], ".service")
	s := map[string]*service{"containerd": m.containerd, "kubelet": m.kubelet, "sshd": m.sshd, "ssh": m.sshd}[name]
	if s == nil {
		return Answer{fmt.Sprintf("Unit %s.service could not be found.\n", name), 4}
	}
	return m.control(verb, s)
}

func (m *machine) control(verb string, s *service) Answer {
	switch verb {
	case "start", "restart":
		if verb == "restart" {
			s.stop()
		}
		if s == m.kubelet {
			m.startKubelet()
		}
		s.start()
	case "stop":
		s.stop()
	case "enable", "disable":
	case "is-enabled":
		return Answer{Output: "enabled\n"}
	case "is-active", "status":
		state, code := s.state(), 0
		if state != "active" {
			code = 3
		}
		if verb == "status" {
			return Answer{fmt.Sprintf("%s.service\n   Loaded: loaded\n   Active: %s\n", s.name, state), code}
		}
		return Answer{state + "\n", code}
	default:
		return Answer{fmt.Sprintf("systemctl %s: not on a localcluster machine\n", verb), 1}
	}
	return Answer{}
}
