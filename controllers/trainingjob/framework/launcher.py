"""Starts one program over the replicas of a job: replica 0 gathers the others, then runs it.

    launcher.py mpi -- PROGRAM...     mpirun on replica 0 starts PROGRAM on all replicas
    launcher.py ray -- PROGRAM...     a Ray cluster of all replicas, and PROGRAM on replica 0

Replica 0 listens at LAUNCH_PORT. The others connect to it, which needs no server in them, and stay connected:

    replica 0                                     another replica
    {"nonce"}                            ->
                                         <-       {"replica", "nonce", "proof"}
    {"proof"}                            ->
    {"run": "command for a shell"}       ->       (MPI: the daemon that mpirun wants there; Ray: nothing)
                                         <-       {"joined"}, {"signal": number}, {"failed": exit code}
    {"end": exit code of the program}    ->

A proof is the HMAC of the other side's nonce under LAUNCH_KEY, so that strangers can neither join nor give commands. When
the program has ended, replica 0 ends with its exit code and the others with 0: the job is what the program made of it. A
replica that loses the connection ends with 75, for the job to be started again. SIGTERM at any replica reaches the program
on replica 0 (with MPI: every rank) as SIGTERM.

It needs Python 3.6 and nothing else, because it runs in the images of users.
"""

import ctypes
import errno
import hashlib
import hmac
import json
import os
import queue
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

EXIT_USAGE = 64
EXIT_PEER_LOST = 75
EXIT_SIGNAL_BASE = 128
CONNECT_SECONDS = 5.0
POLL_SECONDS = 0.2
LOG_EVERY_SECONDS = 10.0
HANDSHAKE_SECONDS = 10.0
FAREWELL_SECONDS = 5.0
# How long a replica that was told to stop waits for replica 0 to say that all have stopped. The operator's grace period
# is 60 seconds.
STOP_SECONDS = 50.0
MAX_LINE = 1 << 20


class UsageError(Exception):
    """What the launcher was started with is wrong."""


class PeerLostError(Exception):
    """Another replica is gone or never came."""


class Settings:
    """What the operator says in the environment."""

    def __init__(self, env):
        self.replicas = self._number(env, "LAUNCH_REPLICAS")
        self.replica = self._number(env, "LAUNCH_REPLICA")
        self.port = self._number(env, "LAUNCH_PORT")
        self.processes = self._number(env, "LAUNCH_PROCESSES")
        self.address = env.get("LAUNCH_ADDRESS", "")
        self.key = env.get("LAUNCH_KEY", "").encode()
        self.patience = float(env.get("RENDEZVOUS_TIMEOUT_SECONDS") or 600)
        if not self.address or not self.key:
            raise UsageError("LAUNCH_ADDRESS and LAUNCH_KEY must be set; the operator sets them")

    @staticmethod
    def _number(env, name):
        try:
            return int(env[name])
        except (KeyError, ValueError):
            raise UsageError("%s is %r, but must be a whole number; the operator sets it" % (name, env.get(name)))


def log(text):
    """One line on standard output."""
    sys.stdout.write("launcher: %s\n" % text)
    sys.stdout.flush()


class Line:
    """A connection on which each side sends JSON objects, one a line."""

    def __init__(self, connection):
        self._connection = connection
        self._stream = connection.makefile("rb")
        self._lock = threading.Lock()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def send(self, **message):
        """Send one object. Raises OSError."""
        with self._lock:
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self):
        """The next object; None when the other side is gone or sends anything else."""
        try:
            text = self._stream.readline(MAX_LINE)
            message = json.loads(text.decode()) if text.endswith(b"\n") else None
        except (OSError, ValueError):
            return None
        return message if isinstance(message, dict) else None

    def patience(self, seconds):
        """How long receive() waits; None: without limit."""
        self._connection.settimeout(seconds)

    def close(self):
        """End the connection, also for a thread that reads from it."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._connection.close()


def proof(key, nonce, role):
    """Shows that the sender knows the key."""
    return hmac.new(key, ("%s %s" % (role, nonce)).encode(), hashlib.sha256).hexdigest()


def connect(settings, address, role):
    """A connection to replica 0 on which both have shown that they know the key. Raises OSError or PeerLostError."""
    line = Line(socket.create_connection((address, settings.port), CONNECT_SECONDS))
    line.patience(HANDSHAKE_SECONDS)
    hello = line.receive() or {}
    nonce = secrets.token_hex(16)
    line.send(role=role, nonce=nonce, proof=proof(settings.key, hello.get("nonce"), role))
    answer = line.receive() or {}
    if not hmac.compare_digest(str(answer.get("proof")), proof(settings.key, nonce, "head")):
        line.close()
        raise PeerLostError("%s does not belong to this job" % address)
    line.patience(None)
    return line


class Head:
    """Replica 0: knows the others, and hears what happens to them."""

    def __init__(self, settings, events):
        """``events`` gets ("signal", number), ("failed", replica, exit code), ("lost", replica) or ("joined", replica)."""
        self._settings = settings
        self._lines = {}
        self._changed = threading.Condition()
        self.events = events
        self._server = self._listen(settings.port)
        threading.Thread(target=self._accept, daemon=True).start()

    @staticmethod
    def _listen(port):
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except (AttributeError, ValueError, OSError) as error:
            if getattr(error, "errno", None) == errno.EADDRINUSE:
                raise UsageError("LAUNCH_PORT %d is in use" % port)
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", port))
        server.listen(128)
        return server

    def _accept(self):
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(Line(connection),), daemon=True).start()

    def _serve(self, line):
        nonce = secrets.token_hex(16)
        line.patience(HANDSHAKE_SECONDS)
        try:
            line.send(nonce=nonce)
            hello = line.receive() or {}
            role = str(hello.get("role"))
            if not hmac.compare_digest(str(hello.get("proof")), proof(self._settings.key, nonce, role)):
                line.close()
                return
            line.send(proof=proof(self._settings.key, hello.get("nonce"), "head"))
        except OSError:
            return
        line.patience(None)
        if role == "agent":
            self._pass_on(line)
        elif role.isdigit() and 0 < int(role) < self._settings.replicas:
            self._follow(int(role), line)

    def _pass_on(self, line):
        """What mpirun wants to be run on another replica."""
        message = line.receive() or {}
        try:
            self._lines[int(message["replica"])].send(run=message["run"])
            line.send(passed=True)
        except (KeyError, ValueError, OSError) as error:
            log("replica %s cannot be reached: %r" % (message.get("replica"), error))
        line.close()

    def _follow(self, replica, line):
        with self._changed:
            self._lines[replica] = line
            self._changed.notify_all()
        while True:
            message = line.receive()
            if message is None:
                self.events.put(("lost", replica))
                return
            if "signal" in message:
                self.events.put(("signal", int(message["signal"])))
            elif "failed" in message:
                self.events.put(("failed", replica, int(message["failed"])))
            elif "joined" in message:
                self.events.put(("joined", replica))

    def gather(self, stopped):
        """Wait until all replicas are connected. Raises PeerLostError; returns early when stopped() says so."""
        deadline, next_log = time.monotonic() + self._settings.patience, time.monotonic() + LOG_EVERY_SECONDS
        with self._changed:
            while not stopped():
                missing = sorted(set(range(1, self._settings.replicas)) - set(self._lines))
                if not missing:
                    log("all %d replicas are here" % self._settings.replicas)
                    return
                now = time.monotonic()
                if now >= deadline:
                    raise PeerLostError("replica %s did not come" % missing[0])
                if now >= next_log:
                    log("waiting for replica %s" % ", ".join(map(str, missing[:10])))
                    next_log = now + LOG_EVERY_SECONDS
                self._changed.wait(POLL_SECONDS)

    def tell(self, **message):
        """Send one object to all."""
        for line in list(self._lines.values()):
            try:
                line.send(**message)
            except OSError:
                pass

    def close(self):
        """Let go of all, who have time to read what they were told last."""
        self._server.close()
        for line in list(self._lines.values()):
            line.close()


class Children:
    """The processes of this replica, which end with it."""

    def __init__(self):
        self._running = []
        self._libc = ctypes.CDLL(None, use_errno=True)

    def start(self, command):
        """Start a process in a group of its own. Raises UsageError when there is no such program."""

        def prepare():
            os.setpgid(0, 0)
            self._libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no process outlives the launcher
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])

        try:
            child = subprocess.Popen(command, preexec_fn=prepare, stdin=subprocess.DEVNULL)
        except OSError as error:
            raise UsageError("%s cannot be run: %s: is it in the image?" % (command[0], error.strerror))
        self._running.append(child)
        return child

    def stop(self, seconds):
        """End what still runs: politely, then not."""
        running = [child for child in self._running if child.poll() is None]
        for child in running:
            os.killpg(child.pid, signal.SIGTERM)
        deadline = time.monotonic() + seconds
        for child in running:
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


class Signals:
    """SIGTERM and SIGINT as something that can be waited for, and not as interruptions."""

    def __init__(self, on_signal):
        self.number = 0
        self._on_signal = on_signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)  # the kernel passes over what process 1 does not handle
        threading.Thread(target=self._listen, daemon=True).start()

    def __bool__(self):
        return self.number != 0

    def _listen(self):
        while True:
            number = int(signal.sigwait([signal.SIGTERM, signal.SIGINT]))
            self.number = self.number or number
            self._on_signal(number)


def exit_code(child):
    """The exit code of an ended process, as a shell has it."""
    return EXIT_SIGNAL_BASE - child.returncode if child.returncode < 0 else child.returncode


def lead(settings, start, stop_signal):
    """Replica 0: gather all, run the program, and tell the others when it has ended. Returns the exit code."""
    children = Children()
    events = queue.Queue()
    # Before any thread starts: one that does not block the signals would swallow them.
    signals = Signals(lambda number: events.put(("signal", number)))
    head = Head(settings, events)
    lost = ""
    try:
        head.gather(lambda: bool(signals))
        if signals:
            return EXIT_SIGNAL_BASE + signals.number
        program = start(settings, children, head)
        while program.poll() is None:
            try:
                event = head.events.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
            if event[0] == "signal":
                log("stopping: signal %d" % event[1])
                program.send_signal(stop_signal)
            elif event[0] == "failed":
                log("replica %d failed with exit code %d" % event[1:])
                lost = lost or "replica %d failed with exit code %d" % event[1:]
                program.terminate()
            elif event[0] == "lost":
                lost = lost or "replica %d was lost" % event[1]
                log(lost)
                program.terminate()
        code = exit_code(program)
        if code and lost and not signals:
            log("exit code %d after %s" % (code, lost))
            code = EXIT_PEER_LOST
        head.tell(end=code)
        return code
    except PeerLostError as error:
        log(str(error))
        return EXIT_PEER_LOST
    finally:
        children.stop(FAREWELL_SECONDS)
        head.close()


def follow(settings, run):
    """Another replica: do what replica 0 says until it has ended. Returns the exit code."""
    children = Children()
    line = reach_head(settings)
    stopping = threading.Event()

    def on_signal(number):
        if stopping.is_set():
            os._exit(EXIT_SIGNAL_BASE + number)
        stopping.set()
        try:
            line.send(signal=number)
        except OSError:
            pass
        # The end comes from replica 0, or not in time.
        timer = threading.Timer(STOP_SECONDS, os._exit, [EXIT_SIGNAL_BASE + number])
        timer.daemon = True
        timer.start()

    signals = Signals(on_signal)
    try:
        while True:
            message = line.receive()
            if message is None:
                log("replica 0 was lost")
                return EXIT_SIGNAL_BASE + signals.number if signals else EXIT_PEER_LOST
            if "end" in message:
                log("replica 0 has ended with exit code %s" % message["end"])
                return EXIT_SIGNAL_BASE + signals.number if signals else 0
            if "run" in message:
                threading.Thread(target=run, args=(settings, children, line, message["run"]), daemon=True).start()
    finally:
        children.stop(FAREWELL_SECONDS)
        line.close()


def reach_head(settings):
    """A connection to replica 0, as soon as it is there. Raises PeerLostError."""
    deadline, next_log = time.monotonic() + settings.patience, time.monotonic() + LOG_EVERY_SECONDS
    while True:
        try:
            line = connect(settings, settings.address, str(settings.replica))
            log("replica %d has joined replica 0" % settings.replica)
            return line
        except (OSError, PeerLostError) as error:
            problem = error
        now = time.monotonic()
        if now >= deadline:
            raise PeerLostError("replica 0 could not be reached: %s" % problem)
        if now >= next_log:
            log("waiting for replica 0 at %s: %s" % (settings.address, problem))
            next_log = now + LOG_EVERY_SECONDS
        time.sleep(POLL_SECONDS)


# MPI


def start_mpirun(program):
    """Has mpirun start the program, under this file, so that a rank gets SIGTERM where mpirun can only pass on SIGUSR1."""

    def start(settings, children, _):
        ranks = str(settings.replicas * settings.processes)
        command = ["mpirun", "--hostfile", write_hostfile(settings), "-np", ranks, "--bind-to", "none"]
        command += shlex.split(os.environ.get("MPIRUN_ARGS", ""))
        command += [sys.executable, os.path.abspath(__file__), "rank", "--"]
        return children.start(command + program)

    return start


def write_hostfile(settings):
    """The hosts with their slots, as mpirun reads them, in a file that ranks find by LAUNCH_HOSTFILE too."""
    hosts = os.environ.get("LAUNCH_HOSTS", "").split(",")
    if len(hosts) != settings.replicas:
        raise UsageError("LAUNCH_HOSTS names %d hosts, but LAUNCH_REPLICAS is %d" % (len(hosts), settings.replicas))
    descriptor, path = tempfile.mkstemp(prefix="hostfile-")
    with os.fdopen(descriptor, "w") as stream:
        stream.writelines("%s slots=%d\n" % (host, settings.processes) for host in hosts)
    os.environ["LAUNCH_HOSTFILE"] = path
    return path


def run_daemon(_, children, line, command):
    """Run the daemon that mpirun wants on this replica."""
    daemon = children.start(["/bin/sh", "-c", command])
    daemon.wait()
    if daemon.returncode:
        try:
            line.send(failed=exit_code(daemon))
        except OSError:
            pass


def agent(arguments):
    """Called by mpirun as ssh would be: [options] host command... Hands the command to the host, and leaves it at that."""
    settings = Settings(os.environ)
    while arguments and arguments[0].startswith("-"):
        arguments = arguments[1:]
    if len(arguments) < 2:
        raise UsageError("usage: launcher.py agent HOST COMMAND...")
    replica = arguments[0].split(".")[0].rpartition("-")[2]
    line = connect(settings, "localhost", "agent")
    line.send(replica=replica, run=" ".join(arguments[1:]))
    return 0 if (line.receive() or {}).get("passed") else EXIT_PEER_LOST


def rank(program):
    """Run one rank: SIGUSR1, which mpirun passes on, becomes SIGTERM."""
    children = Children()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])
    child = children.start(program)

    def pass_on():
        while True:
            signal.sigwait([signal.SIGTERM, signal.SIGUSR1])
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)

    threading.Thread(target=pass_on, daemon=True).start()
    child.wait()
    return exit_code(child)


# Ray


def start_ray(program):
    """Starts the head of a Ray cluster, lets the others join it, and runs the program there."""

    def start(settings, children, head):
        env = os.environ
        run_ray(
            children, "--head", "--port=" + env["RAY_HEAD_PORT"], "--dashboard-host=0.0.0.0",
            "--dashboard-port=" + env["RAY_DASHBOARD_PORT"], "--ray-client-server-port=" + env["RAY_CLIENT_PORT"],
        )
        head.tell(run="join")
        joined, deadline = 0, time.monotonic() + settings.patience
        while joined < settings.replicas - 1:
            try:
                event = head.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise PeerLostError("only %d of %d replicas joined the Ray cluster" % (joined + 1, settings.replicas))
            if event[0] == "joined":
                joined += 1
            elif event[0] == "signal":
                raise SystemExit(EXIT_SIGNAL_BASE + event[1])
            else:
                raise PeerLostError("replica %d did not join the Ray cluster" % event[1])
        log("the Ray cluster has all %d replicas" % settings.replicas)
        return children.start(program)

    return start


def join_ray(_, children, line, __):
    """Join the Ray cluster of replica 0."""
    try:
        run_ray(children, "--address=" + os.environ["RAY_ADDRESS"])
        line.send(joined=True)
    except (PeerLostError, UsageError) as error:
        log(str(error))
        line.send(failed=EXIT_USAGE if isinstance(error, UsageError) else EXIT_PEER_LOST)


def run_ray(children, *arguments):
    """Start Ray's processes, which go on in the background. Raises PeerLostError."""
    command = ["ray", "start", "--num-gpus=" + os.environ.get("RAY_NUM_GPUS", "0"), "--disable-usage-stats"]
    command += list(arguments) + shlex.split(os.environ.get("RAY_START_ARGS", ""))
    code = children.start(command).wait()
    if code:
        raise PeerLostError("%s ended with exit code %d" % (" ".join(command), code))


def stop_ray():
    """End Ray's processes on this replica."""
    try:
        subprocess.call(["ray", "stop", "--force"], stdin=subprocess.DEVNULL, timeout=FAREWELL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        log("ray stop: %s" % error)


def main(arguments):
    """Do what the first argument says. Returns the exit code."""
    mode, program = (arguments or [""])[0], arguments[2:]
    if mode == "agent":
        return agent(arguments[1:])
    if mode not in ("mpi", "ray", "rank") or arguments[1:2] != ["--"] or not program:
        raise UsageError("usage: launcher.py mpi|ray|rank -- PROGRAM...")
    if mode == "rank":
        return rank(program)
    settings = Settings(os.environ)
    if mode == "mpi":
        if settings.replica == 0:
            return lead(settings, start_mpirun(program), signal.SIGUSR1)
        return follow(settings, run_daemon)
    try:
        if settings.replica == 0:
            return lead(settings, start_ray(program), signal.SIGTERM)
        return follow(settings, join_ray)
    finally:
        stop_ray()


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except UsageError as error:
        log(str(error))
        code = EXIT_USAGE
    except PeerLostError as error:
        log(str(error))
        code = EXIT_PEER_LOST
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads that wait for others are not waited for
