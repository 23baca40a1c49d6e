package guest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

// socket is where the supervisor serves systemctl.
const socket = "/run/localcluster/systemctl.sock"

type answer struct {
	Output string `json:"output"`
	Code   int    `json:"code"`
}

// Systemctl is the part of systemctl that kubeadm and startup scripts need on a machine, where no systemd runs.
func Systemctl(args []string, out io.Writer) (code int, err error) {
	connection, err := net.Dial("unix", socket)
	if err != nil {
		return 1, err
	}
	defer connection.Close()
	if err := json.NewEncoder(connection).Encode(args); err != nil {
		return 1, err
	}
	var a answer
	if err := json.NewDecoder(connection).Decode(&a); err != nil {
		return 1, err
	}
	fmt.Fprint(out, a.Output)
	return a.Code, nil
}

func listen() (net.Listener, error) {
	_ = os.Remove(socket)
	return net.Listen("unix", socket)
}

func (m *machine) serve(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer connection.Close()
			var args []string
			if json.NewDecoder(connection).Decode(&args) == nil {
				_ = json.NewEncoder(connection).Encode(m.systemctl(args))
			}
		}()
	}
}

func (m *machine) systemctl(args []string) answer {
	var words []string
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") { // --now, --no-pager and such
			words = append(words, arg)
		}
	}
	if len(words) == 0 {
		return answer{"systemctl of a localcluster machine: daemon-reload, enable, disable, start, stop, restart, status, is-active, is-enabled\n", 1}
	}
	verb := words[0]
	if verb == "daemon-reload" {
		return answer{}
	}
	if len(words) != 2 {
		return answer{fmt.Sprintf("systemctl %s: want the name of one service\n", verb), 1}
	}
	name := strings.TrimSuffix(words[1], ".service")
	s := map[string]*service{"containerd": m.containerd, "kubelet": m.kubelet, "sshd": m.sshd, "ssh": m.sshd}[name]
	if s == nil {
		return answer{fmt.Sprintf("Unit %s.service could not be found.\n", name), 4}
	}
	return m.control(verb, s)
}

func (m *machine) control(verb string, s *service) answer {
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
		return answer{Output: "enabled\n"}
	case "is-active", "status":
		state, code := s.state(), 0
		if state != "active" {
			code = 3
		}
		if verb == "status" {
			return answer{fmt.Sprintf("%s.service\n   Loaded: loaded\n   Active: %s\n", s.name, state), code}
		}
		return answer{state + "\n", code}
	default:
		return answer{fmt.Sprintf("systemctl %s: not on a localcluster machine\n", verb), 1}
	}
	return answer{}
}
