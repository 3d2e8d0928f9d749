// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/seal"
	"github.com/kubedevice/kubedevice/test/binaries"
	"github.com/kubedevice/kubedevice/test/cluster"
)

// release is a release of this project.
type release string

const (
	before release = release(binaries.PreviousRelease)
	now    release = "this release"
)

// installed is what a cluster has of a release.
type installed struct {
	root      string // has deploy
	scheduler cluster.Program
	kubecri   cluster.Program
}

// deploy is a directory of the release's manifests.
func (i installed) deploy(name string) string { return filepath.Join(i.root, "deploy", name) }

// releases is the cluster while programs of two releases take each other's place on it.
type releases struct {
	installed  map[release]installed
	enforcing  cluster.Program // kubecri of this release, with enforced seals
	requiring  cluster.Program // the same, without which the runtime creates no container with devices
	schedulers map[release]*cluster.Component
	kubecris   map[release]*cluster.Component
	at         skew // the releases that run

	// kept are pods that stay to the end, one from each step of the walk on. The first so many of
	// them were restarted.
	kept      *workload
	restarted int
}

// skew is which release each part of the cluster is of.
type skew struct{ scheduler, kubecri, policies release }

// walk is where a cluster of the release before goes, one step after the other: forward and back,
// with kubecri first and with the scheduler first.
var walk = []struct {
	title string
	to    skew
}{
	{"the release before", skew{before, before, before}},
	{"kubecri is upgraded first", skew{before, now, before}},
	{"then policies and rights", skew{before, now, now}},
	{"then the scheduler", skew{now, now, now}},
	{"kubecri goes back first", skew{now, before, now}},
	{"then the scheduler", skew{before, before, now}},
	{"the scheduler is upgraded first", skew{now, before, now}},
	{"then kubecri", skew{now, now, now}},
	{"policies and rights go back", skew{now, now, before}},
	{"then the scheduler goes back", skew{before, now, before}},
	{"then kubecri", skew{before, before, before}},
}

// skews returns the scenarios of the walk, and of what the releases refuse of each other.
func (r *run) skews() []scenario {
	r.releases.schedulers[before], r.releases.kubecris[before] = r.cluster.Scheduler, r.node.Kubecri
	r.releases.schedulers[now] = r.cluster.NewScheduler("next-scheduler", nextPort, r.releases.installed[now].scheduler)
	r.releases.kubecris[now] = r.node.NewKubecri("kubecri-next", r.releases.installed[now].kubecri)
	r.releases.kept = &workload{client: r.cluster.Client, namespace: r.namespace, name: "kept", containers: 1}
	var all []scenario
	for i, step := range walk {
		all = append(all, scenario{
			name: fmt.Sprintf("release-%d", i), title: step.title, interval: time.Second / upgradePods,
			disturb: withoutWorkload(limited(func(ctx context.Context) (int, error) { return r.move(ctx, step.to) })),
		})
	}
	return append(all, scenario{name: "refusals", title: "what one release refuses of the other",
		disturb: withoutWorkload(limited(r.refuse))})
}

// moveTimeout is how long one step of the walk may take.
const moveTimeout = 5 * time.Minute

// limited returns disturb with that limit.
func limited(disturb func(context.Context) (int, error)) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		ctx, cancel := context.WithTimeout(ctx, moveTimeout)
		defer cancel()
		return disturb(ctx)
	}
}

// nextPort is where the scheduler of this release serves.
const nextPort = 10272

// describeReleases returns the options of a cluster of the release before. Its node has a device
// for each container of a scenario, and for each pod that is kept.
func (r *run) describeReleases(ctx context.Context, root, directory string) (cluster.Options, error) {
	described, err := r.clusterOptions(directory, r.options.Creations+len(walk)+3)
	if err != nil {
		return described, err
	}
	keys := filepath.Join(directory, "seal-keys")
	made, err := exec.CommandContext(ctx, described.Nodes[0].Kubecri.Path, "seal-keys", "create", keys).CombinedOutput()
	if err != nil {
		return described, fmt.Errorf("make seal keys: %w\n%s", err, made)
	}
	sealed := func(mode seal.Mode, args ...string) cluster.Program {
		args = append(args, "--seal-certificates="+filepath.Join(keys, "certificates.pem"), "--seal-mode="+string(mode))
		return withArguments(*described.Nodes[0].Kubecri, args...)
	}
	const unrequired = "--nri-socket=" // the release before cannot create what requires this one
	old := filepath.Join(described.Programs, string(before))
	r.releases = &releases{
		installed: map[release]installed{
			now: {
				root: root, kubecri: sealed(seal.Warn, unrequired),
				scheduler: withArguments(described.Scheduler, "--device-seal-key="+filepath.Join(keys, "private.pem"),
					"--device-seal-mode="+string(seal.Warn)),
			},
			before: {
				root: old,
				scheduler: cluster.Program{Path: filepath.Join(old, "kube-scheduler"),
					Args: []string{"--devschedpath=" + filepath.Join(old, "plugins", "scheduler")}},
				kubecri: cluster.Program{Path: filepath.Join(old, "kubecri"),
					Args: []string{"--cridevices=" + filepath.Join(old, "plugins", "device")}},
			},
		},
		enforcing:  sealed(seal.Enforce, unrequired),
		requiring:  sealed(seal.Warn),
		schedulers: map[release]*cluster.Component{}, kubecris: map[release]*cluster.Component{},
		at: skew{before, before, before},
	}
	described.Seals = ""
	described.Scheduler = r.releases.installed[before].scheduler
	*described.Nodes[0].Kubecri = r.releases.installed[before].kubecri
	described.Manifests = manifests(r.releases.installed[before])
	return described, nil
}

// withArguments returns a program with more arguments.
func withArguments(program cluster.Program, args ...string) cluster.Program {
	program.Args = slices.Concat(program.Args, args)
	return program
}

func manifests(i installed) []string { return []string{i.deploy("rbac"), i.deploy("policies")} }

// move replaces what is of another release than to says, and finds out whether pods have what they
// should: those that are there, those of them that are restarted under another kubecri than the one
// that granted them their devices, and one more, which is kept. It returns how many programs were
// replaced.
func (r *run) move(ctx context.Context, to skew) (count int, err error) {
	all, at := r.releases, r.releases.at
	if to.policies != at.policies {
		if err := r.cluster.Apply(ctx, manifests(all.installed[to.policies])...); err != nil {
			return 0, err
		}
	}
	if to.kubecri != at.kubecri {
		if err := r.succeed(ctx, all.kubecris[at.kubecri], all.kubecris[to.kubecri]); err != nil {
			return count, err
		}
		count++
		if err := r.restartKept(ctx); err != nil {
			return count, err
		}
	}
	if to.scheduler != at.scheduler {
		if err := all.schedulers[at.scheduler].Terminate(ctx); err != nil {
			return count, err
		}
		if err := all.schedulers[to.scheduler].Start(); err != nil {
			return count, err
		}
		count++
	}
	all.at = to
	return count, r.keep(ctx)
}

// restartKept restarts the kept pods that were not restarted before: a second time would have to
// wait.
func (r *run) restartKept(ctx context.Context) error {
	ready, err := r.awaitKept(ctx)
	if err != nil {
		return err
	}
	for _, pod := range ready[r.releases.restarted:] {
		r.auditor.MayEnd(string(pod.UID))
		if _, err := r.cluster.Client.RestartContainer(ctx, &pod); err != nil {
			return fmt.Errorf("restart a pod under kubecri of another release: %w", err)
		}
		r.releases.restarted++
	}
	return nil
}

// keep creates one more pod that is kept, and compares what all of them have, and what both
// releases read on record, with what the scheduler chose.
func (r *run) keep(ctx context.Context) error {
	if err := r.releases.kept.create(ctx, 1, 0); err != nil {
		return err
	}
	found := &Result{Scenario: "pods that are kept"}
	ready, lost, err := r.awaitSettled(ctx, r.releases.kept, found)
	if err := errors.Join(append(errorsOf(lost), err)...); err != nil {
		return err
	}
	if err := r.audit(ctx, ready, found); err != nil {
		return err
	}
	for _, violations := range found.violations() {
		for _, violation := range violations {
			err = errors.Join(err, errors.New(violation))
		}
	}
	return errors.Join(err, r.compareReaders(ctx))
}

// awaitKept waits until the kept pods are ready.
func (r *run) awaitKept(ctx context.Context) ([]corev1.Pod, error) {
	ready, lost, err := r.releases.kept.awaitReady(ctx, recoveryTimeout)
	return ready, errors.Join(append(errorsOf(lost), err)...)
}

// compareReaders compares what kubecri of each release reads of the kept pods in the checkpoint.
func (r *run) compareReaders(ctx context.Context) error {
	earlier, err := r.checkpointedBy(ctx, r.releases.installed[before].kubecri.Path)
	if err != nil {
		return err
	}
	later, err := r.checkpointedBy(ctx, r.releases.installed[now].kubecri.Path)
	if err != nil {
		return err
	}
	for _, uid := range r.releases.kept.uids() {
		read := later[uid]
		read.Signed = false // the release before does not know the field
		a, errA := json.Marshal(earlier[uid])
		b, errB := json.Marshal(read)
		if err := errors.Join(errA, errB); err != nil {
			return err
		}
		if earlier[uid].PodUID == "" || !bytes.Equal(a, b) {
			return fmt.Errorf("of pod %s on record, kubecri of %s reads %s, and of %s %s", uid, before, a, now, b)
		}
	}
	return nil
}

// refuse finds out that what cannot work across releases is refused, in words. The scheduler is of
// the release before.
func (r *run) refuse(ctx context.Context) (count int, err error) {
	const otherPlugin = "is built with a different version of package"
	for _, one := range []struct {
		path string
		args []string
		says string
	}{
		{r.kubecriOf(before), []string{"plugin", "check", r.pluginOf(now)}, otherPlugin},
		{r.kubecriOf(now), []string{"plugin", "check", r.pluginOf(before)}, otherPlugin},
		{r.kubecriOf(before), []string{"--kubecri-config=" + r.releases.installed[now].deploy("systemd/kubecri.yaml")},
			`unknown field "sealCertificates"`},
		{r.releases.installed[before].scheduler.Path, r.releases.installed[now].scheduler.Args,
			"unknown flag: --device-seal-key"},
	} {
		printed, err := exec.CommandContext(ctx, one.path, one.args...).CombinedOutput()
		if err == nil || !strings.Contains(string(printed), one.says) {
			return 0, fmt.Errorf("%s %s ended with %v, and does not say %q:\n%s", one.path, strings.Join(one.args, " "),
				err, one.says, printed)
		}
	}
	count, err = r.enforce(ctx)
	if err != nil {
		return count, err
	}
	required, err := r.require(ctx)
	return count + required, err
}

// enforce finds out that a node that enforces seals refuses what the release before schedules, and
// takes it when seals are not enforced any more.
func (r *run) enforce(ctx context.Context) (count int, err error) {
	enforcing := r.node.NewKubecri("kubecri-enforcing", r.releases.enforcing)
	if err := r.succeed(ctx, r.releases.kubecris[before], enforcing); err != nil {
		return 0, err
	}
	refused := &workload{client: r.cluster.Client, namespace: r.namespace, name: "unsealed", containers: 1}
	if err := refused.create(ctx, 1, 0); err != nil {
		return 1, err
	}
	if err := r.awaitRefusal(ctx, refused.created[0], "the allocation has no seal"); err != nil {
		return 1, err
	}
	if err := r.succeed(ctx, enforcing, r.releases.kubecris[now]); err != nil {
		return 1, err
	}
	r.releases.kept.created = append(r.releases.kept.created, refused.created...)
	_, err = r.awaitKept(ctx)
	return 2, err
}

// require finds out that a pod which was bound while its node required kubecri of this release gets
// no container under the release before, and gets it when this release is back.
func (r *run) require(ctx context.Context) (count int, err error) {
	all := r.releases
	if err := all.schedulers[before].Terminate(ctx); err != nil {
		return 0, err
	}
	if err := all.schedulers[now].Start(); err != nil {
		return 0, err
	}
	requiring := r.node.NewKubecri("kubecri-requiring", all.requiring)
	if err := r.succeed(ctx, all.kubecris[now], requiring); err != nil {
		return 1, err
	}
	// The runtime says what it refuses when it creates a container.
	if err := r.keep(ctx); err != nil {
		return 2, err
	}
	if err := r.await(ctx, "the node requires kubecri", func() bool {
		node, err := r.cluster.Client.CoreV1().Nodes().Get(ctx, r.node.Name, metav1.GetOptions{})
		return err == nil && node.Annotations[deviceinfo.RequiredPluginAnnotation] == deviceinfo.NRIPlugin
	}); err != nil {
		return 2, err
	}
	if err := r.keep(ctx); err != nil {
		return 2, err
	}
	if err := r.succeed(ctx, requiring, all.kubecris[before]); err != nil {
		return 2, err
	}
	pod := all.kept.created[len(all.kept.created)-1]
	r.auditor.MayEnd(string(pod.UID))
	if err := r.cluster.Client.EndContainer(ctx, pod); err != nil {
		return 2, err
	}
	if err := r.awaitRefusal(ctx, pod, `required plugin "kubedevice" not present`); err != nil {
		return 3, err
	}
	if err := r.succeed(ctx, all.kubecris[before], requiring); err != nil {
		return 3, err
	}
	_, err = r.awaitKept(ctx)
	return 4, err
}

// awaitRefusal waits until a pod waits for a container that is refused for a reason.
func (r *run) awaitRefusal(ctx context.Context, pod *corev1.Pod, reason string) error {
	_, err := r.cluster.Client.AwaitPod(ctx, pod, "to be refused", func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool {
			return status.State.Waiting != nil && strings.Contains(status.State.Waiting.Message, reason)
		})
	})
	return err
}

func (r *run) kubecriOf(of release) string { return r.releases.installed[of].kubecri.Path }

// pluginOf returns a device plugin of a release.
func (r *run) pluginOf(of release) string {
	_, directory, _ := strings.Cut(r.releases.installed[of].kubecri.Args[0], "=")
	return filepath.Join(directory, "simgpu.so")
}
