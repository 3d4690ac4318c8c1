package main

import "syscall"

// childAttributes makes the kernel kill a component when this process dies, however it dies,
// and keeps a terminal's Ctrl-C from reaching it before this process has its say.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
