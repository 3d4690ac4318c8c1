// Controlplane starts a real Kubernetes control plane for tests: etcd and kube-apiserver and,
// on a flag, kube-scheduler and kube-controller-manager, on free loopback ports.
//
// When all of it is ready one JSON line goes to stdout. Then it reads commands from stdin, a
// word a line, and answers each with one JSON line. It ends everything and removes its files
// when stdin closes (so also when the parent dies), on SIGTERM and on SIGINT.
//
//	stop-apiserver    kill kube-apiserver as a crash would; etcd keeps the data
//	start-apiserver   start it again on the same port, answered when it is ready
//	compact           drop etcd's history, so that old resourceVersions are gone
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// options is what the command line asks for.
type options struct {
	scheduler         bool
	controllerManager bool
	dir               string
	featureGates      string
	runtimeConfig     string
	readyWithin       time.Duration
	extra             map[string]*stringList
}

// stringList is a flag that may be given several times.
type stringList []string

func (l *stringList) String() string { return strings.Join(*l, " ") }

func (l *stringList) Set(value string) error {
	*l = append(*l, value)
	return nil
}

func parseOptions() options {
	o := options{extra: map[string]*stringList{}}
	flag.BoolVar(&o.scheduler, "scheduler", false, "also run kube-scheduler")
	flag.BoolVar(&o.controllerManager, "controller-manager", false, "also run kube-controller-manager")
	flag.StringVar(&o.dir, "dir", "", "keep data and logs in `DIR` (default: a temporary folder, removed at exit)")
	flag.StringVar(&o.featureGates, "feature-gates", "", "feature gates of every Kubernetes component, `Name=true,...`")
	flag.StringVar(&o.runtimeConfig, "runtime-config", "", "API versions of kube-apiserver, `group/version=true,...`")
	flag.DurationVar(&o.readyWithin, "ready-within", 2*time.Minute, "give up when a component is not ready after this `time`")
	for _, name := range []string{etcdName, apiserverName, schedulerName, controllerManagerName} {
		o.extra[name] = &stringList{}
		flag.Var(o.extra[name], name+"-arg", "one more `argument` for "+name+" (may be repeated)")
	}
	flag.Usage = func() {
		fmt.Fprintf(os.Stderr, "usage: controlplane [flags]\nStarts Kubernetes %s for tests.\n", version())
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "controlplane: unexpected argument %q; see --help\n", flag.Arg(0))
		os.Exit(2)
	}
	return o
}

func init() {
	// The kernel ties the children's parent-death signal to the thread that started them, so
	// the main goroutine starts them all and stays on the one thread that lives to the end.
	runtime.LockOSThread()
}

func main() {
	runComponent()
	o := parseOptions()
	if err := run(o); err != nil {
		fmt.Fprintf(os.Stderr, "controlplane: %v\n", err)
		os.Exit(1)
	}
}

// run starts the control plane and serves commands until it is told to end.
func run(o options) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	commands := readCommands(os.Stdin)

	p, err := newPlane(o)
	if err != nil {
		return err
	}
	defer p.end()

	ready := make(chan error, 1)
	if err := p.startServers(ready); err != nil {
		return err
	}
	replies := json.NewEncoder(os.Stdout)
	for {
		select {
		case <-signals:
			return nil
		case exited := <-p.exited:
			if !exited.stopping {
				return fmt.Errorf("%s ended by itself (%v); the end of its log:\n%s", exited.name, exited.err, exited.logTail())
			}
		case err := <-ready:
			if err != nil {
				return err
			}
			if err := p.startControllers(); err != nil {
				return err
			}
			if err := replies.Encode(p.describe()); err != nil {
				return err
			}
			ready = nil
		case command, open := <-commands:
			if !open {
				return nil
			}
			if err := replies.Encode(p.answer(command)); err != nil {
				return err
			}
		}
	}
}
