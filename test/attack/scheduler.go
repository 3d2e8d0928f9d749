// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// ownSchedulerPort is where a scheduler serves that an attempt starts for itself.
const ownSchedulerPort = 10280

// startScheduler starts one more of our schedulers, with further arguments, for the pods that name
// it by the attempt's ID; see forOwnScheduler. It has the cluster's plugins and those of the files.
// Of attempts that start one, none may be made at the same time. The caller kills it.
func (s *Stage) startScheduler(ctx context.Context, plugins map[string]string, args ...string) (*cluster.Component,
	error) {
	dir := filepath.Join(s.run.dir, s.attempt.ID)
	config, directory := filepath.Join(dir, "scheduler.yaml"), filepath.Join(dir, "plugins")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	ours := filepath.Join(filepath.Dir(s.run.plugins), "scheduler")
	if err := os.CopyFS(directory, os.DirFS(ours)); err != nil {
		return nil, err
	}
	for name, source := range plugins {
		if err := buildPlugin(ctx, source, filepath.Join(directory, name)); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(config, s.cluster.SchedulerConfig(s.attempt.ID), 0o644); err != nil {
		return nil, err
	}
	args = append(args, "--config="+config, "--devschedpath="+directory,
		"--"+pluginload.AllowWritableFlag) // they are below a directory for all
	if s.setting.seals() {
		args = append(args, "--device-seal-key="+s.run.keys.private)
	}
	scheduler := s.cluster.NewScheduler("kube-scheduler-"+s.attempt.ID, ownSchedulerPort,
		cluster.Program{Path: s.run.scheduler, Args: args})
	if err := scheduler.Start(); err != nil {
		return nil, err
	}
	ready := s.forOwnScheduler(clustertest.IdlePod(s.namespace, "ready", nil))
	created, err := s.admin.CreatePod(ctx, ready)
	if err == nil {
		_, err = s.admin.AwaitPod(ctx, created, "to be scheduled by a scheduler that starts", kube.Scheduled)
	}
	if err != nil {
		return nil, errors.Join(err, scheduler.Kill9(context.WithoutCancel(ctx)))
	}
	return scheduler, nil
}

// forOwnScheduler returns a pod of the node scheduled that names the attempt's own scheduler.
func (s *Stage) forOwnScheduler(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.SchedulerName = s.attempt.ID
	return clustertest.On(s.node(scheduled).Name, pod)
}

// buildPlugin builds a scheduler plugin from a directory of this package.
func buildPlugin(ctx context.Context, source, file string) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-buildmode=plugin", "-trimpath", "-buildvcs=false", "-o", file,
		"./attack/"+source)
	build.Dir = filepath.Join(root, "test")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	var said bytes.Buffer
	build.Stdout, build.Stderr = &said, &said
	if err := build.Run(); err != nil {
		return fmt.Errorf("build plugin %s: %w: %s", source, err, strings.TrimSpace(said.String()))
	}
	return nil
}

// delayTimeout is how long other tenants' pods may wait for a pod of the attacker's.
const delayTimeout = 15 * time.Second

// holdsUp finds out whether the attempt's own scheduler leaves pods of others waiting, one without
// devices and one with a GPU. It succeeds if one waits for longer than delayTimeout.
func (s *Stage) holdsUp(ctx context.Context, scheduler *cluster.Component) (Got, error) {
	limited, cancel := context.WithTimeout(ctx, delayTimeout)
	defer cancel()
	for name, gpus := range map[string]int64{"plain": 0, "with-gpu": 1} {
		created, err := s.admin.CreatePod(ctx, s.forOwnScheduler(s.pod(name, gpus)))
		if err != nil {
			return Got{}, err
		}
		_, err = s.admin.AwaitPod(limited, created, "to be scheduled", kube.Scheduled)
		switch {
		case err == nil:
		case ctx.Err() == nil && limited.Err() != nil && scheduler.PID() == 0:
			return Got{Succeeds, "the scheduler has ended, and pod " + name + " waits"}, nil
		case ctx.Err() == nil && limited.Err() != nil:
			return Got{Succeeds, "pod " + name + " waits"}, nil
		default:
			return Got{}, err
		}
	}
	return Got{NoEffect, "pods of others are scheduled"}, nil
}
