//go:build !linux

package main

import "syscall"

// childAttributes keeps a terminal's Ctrl-C from reaching a component before this process has
// its say. Only Linux can also end it when this process is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
