// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
)

// killTimeout is how long kubecri may take to end.
const killTimeout = 30 * time.Second

// Host is the Machine on which this container runs. Its methods must not run at the same time.
type Host struct {
	Programs
	// Self is the program that has the command on-host, which is Enter.
	Self string
	// Journal is the path of the enrolment's journal on the machine.
	Journal string
	// NRI says that Serve starts kubecri; otherwise the machine's systemd does.
	NRI bool
	// EnrolFlags and LeaveFlags are for kubecri's commands of these names.
	EnrolFlags, LeaveFlags []string

	child *exec.Cmd
	ended chan struct{}
}

var _ Machine = (*Host)(nil)

// command is a program of the machine that is to be started there.
func (h *Host) command(ctx context.Context, path string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, h.Self, append([]string{"on-host", "--", path}, args...)...)
	command.Stderr = os.Stderr
	return command
}

// Enrolled reports whether the machine has a journal.
func (h *Host) Enrolled() (bool, error) {
	_, err := os.Lstat(filepath.Join(h.Root, h.Journal))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Enrol runs kubecri enrol.
func (h *Host) Enrol(ctx context.Context) (*enrolment.Report, error) {
	return h.report(ctx, "enrol", h.EnrolFlags...)
}

// Leave runs kubecri leave.
func (h *Host) Leave(ctx context.Context, drain bool) (*enrolment.Report, error) {
	flags := h.LeaveFlags
	if drain {
		flags = append([]string{"--drain"}, flags...)
	}
	if h.running() {
		flags = append([]string{"--process=" + strconv.Itoa(h.child.Process.Pid)}, flags...)
	}
	return h.report(ctx, "leave", flags...)
}

// report runs a command that prints a report.
func (h *Host) report(ctx context.Context, verb string, flags ...string) (*enrolment.Report, error) {
	flags = append([]string{verb, "--output=json", "--kubecri-config=" + h.Path(configurationName)}, flags...)
	command := h.command(ctx, h.Path(programName), flags...)
	var printed bytes.Buffer
	command.Stdout = &printed
	failed := command.Run()
	report := &enrolment.Report{}
	if err := json.Unmarshal(printed.Bytes(), report); err != nil {
		return nil, fmt.Errorf("kubecri %s ended without a report: %w", verb, errors.Join(failed, err))
	}
	return report, nil
}

// Serve starts kubecri, unless it runs. With systemd, which keeps it running, it only restarts it.
func (h *Host) Serve(ctx context.Context, renew bool) error {
	if !h.NRI {
		if !renew {
			return nil
		}
		command := h.command(ctx, "/bin/sh", "-c", "exec systemctl restart kubecri.service")
		if err := command.Run(); err != nil {
			return fmt.Errorf("restart kubecri.service: %w", err)
		}
		return nil
	}
	if h.running() {
		if !renew {
			return nil
		}
		if err := h.Stop(); err != nil {
			return err
		}
	}
	child := h.command(context.WithoutCancel(ctx), h.Path(programName), "--kubecri-config="+h.Path(configurationName))
	child.Stdout = os.Stdout
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := child.Start(); err != nil {
		return fmt.Errorf("start kubecri: %w", err)
	}
	ended := make(chan struct{})
	h.child, h.ended = child, ended
	go func() {
		defer close(ended)
		// How it ended, it has said itself.
		_ = child.Wait()
	}()
	return nil
}

// Ended is closed when the kubecri that Serve has started has ended. It is nil if there is none.
func (h *Host) Ended() <-chan struct{} { return h.ended }

// Stop ends kubecri, if it runs.
func (h *Host) Stop() error {
	if h.child == nil {
		return nil
	}
	// One that has ended is none to signal.
	_ = h.child.Process.Signal(syscall.SIGTERM)
	select {
	case <-h.ended:
	case <-time.After(killTimeout):
		if err := h.child.Process.Kill(); err != nil {
			return err
		}
		<-h.ended
	}
	h.child, h.ended = nil, nil
	return nil
}

// running reports whether the kubecri that Serve has started still runs.
func (h *Host) running() bool {
	if h.child == nil {
		return false
	}
	select {
	case <-h.ended:
		h.child, h.ended = nil, nil
		return false
	default:
		return true
	}
}

// Clean ends kubecri, if a leave has not, and removes what Install has put on the machine.
func (h *Host) Clean() error {
	if err := h.Stop(); err != nil {
		return err
	}
	return h.Programs.Clean()
}
