// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package robustness kills kubecri at every failpoint, also while devices fail and are
// replaced, upgrades it, and kills the container runtime, all while pods with devices start on a
// real cluster; and shows what became of them. What counts is taken from the API server, from the
// kernel, and from the checkpoint of grants: no pod is lost, no device is in two containers at the
// same time, no container that runs notices, and nothing stays granted when its pod is gone.
//
// kubecri is built with failpoints for this; see package failpoint.
package robustness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
	"github.com/kubedevice/kubedevice/test/audit"
	"github.com/kubedevice/kubedevice/test/binaries"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/observe"
)

// Options say how much is tried.
type Options struct {
	// Mode is that of the node's kubecri. The release before knows no mode but cluster.ModeCRI, so
	// Releases needs that.
	Mode cluster.Mode
	// Points are the failpoints at which kubecri is killed, each in a scenario of its own: while
	// containers are created, and those of a replacement while devices fail, too.
	Points []failpoint.Point
	// Kills is how often that happens in each scenario, Creations how many containers are created
	// at a time, over and over, until it has.
	Kills, Creations int
	// Upgrades says whether kubecri is replaced by the same while pods are created, Runtime whether
	// the container runtime is killed, Releases whether scheduler and kubecri go to the release
	// before and come back.
	Upgrades, Runtime, Releases bool
	// Dir is the absolute path of where the cluster and its logs are, and the results, as
	// JSON.
	Dir string
}

// Full returns the options of a full run, with the directory _output/robustness, in ModeNRI
// _output/robustness-nri.
func Full(mode cluster.Mode) (Options, error) {
	root, err := checkout.Root()
	if err != nil {
		return Options{}, err
	}
	options := Options{
		Mode: mode, Points: failpoint.Points(), Kills: 20, Creations: 50, Upgrades: true, Runtime: true,
		Releases: true, Dir: filepath.Join(root, "_output", "robustness"),
	}
	if mode == cluster.ModeNRI {
		options.Points, options.Releases = nriPoints(), false
		options.Dir += "-nri"
	}
	return options, nil
}

const (
	// perPod is how many containers a pod has, with one device each.
	perPod = 2
	// startTimeout and recoveryTimeout leave sandbox for a busy machine. After the last kill, a
	// kubelet takes some ten seconds before it tries again what failed.
	startTimeout    = 3 * time.Minute
	recoveryTimeout = 3 * time.Minute
	// orphanAge is how long after its pod a grant may be in the checkpoint.
	orphanAge = time.Minute
)

// run is a run in progress, on a cluster of one node.
type run struct {
	options   Options
	out       io.Writer
	cluster   *cluster.Cluster
	node      *cluster.Node
	kubecri   cluster.Program // that the node begins with
	observer  *observe.Observer
	auditor   *audit.Auditor
	trigger   string // the file that arms failpoints
	inventory string // the file that describes the node's devices
	devices   int    // how many these are
	releases  *releases
	namespace string

	aging  sync.WaitGroup // readings for orphaned grants
	noting sync.Mutex     // guards what that and look add to results
}

// stage is a cluster and what is played on it.
type stage struct {
	// describe returns the cluster's options. root is the checkout, and directory takes files that
	// the cluster's programs read.
	describe  func(r *run, ctx context.Context, root, directory string) (cluster.Options, error)
	extras    []binaries.Extra
	scenarios func(r *run) []scenario
}

// stages returns what the options request.
func (o Options) stages() []stage {
	var all []stage
	if len(o.Points) > 0 || o.Upgrades || o.Runtime {
		all = append(all, stage{describe: (*run).describe, scenarios: (*run).kills})
	}
	if o.Releases {
		all = append(all, stage{describe: (*run).describeReleases,
			extras: []binaries.Extra{binaries.PreviousRelease}, scenarios: (*run).skews})
	}
	return all
}

// Run plays all scenarios and returns an error unless everything passed. out gets what people read.
func Run(ctx context.Context, out io.Writer, options Options) (err error) {
	if options.Mode == cluster.ModeNRI && options.Releases {
		return fmt.Errorf("the release before, %s, is no NRI plugin: leave out the releases", binaries.PreviousRelease)
	}
	var results []*Result
	for _, s := range options.stages() {
		r := &run{options: options, out: out}
		played, failed := r.playStage(ctx, s)
		results = append(results, played...)
		if err = failed; err != nil {
			break
		}
	}
	show(out, results)
	err = errors.Join(err, save(options.Dir, results))
	if bad := slices.IndexFunc(results, func(r *Result) bool { return !r.OK() }); err == nil && bad >= 0 {
		err = fmt.Errorf("%s: not everything passed", results[bad].Scenario)
	}
	return err
}

// playStage plays the scenarios of a stage on its cluster, and returns their results as far as it
// came.
func (r *run) playStage(ctx context.Context, s stage) (results []*Result, err error) {
	root, err := checkout.Root()
	if err != nil {
		return nil, err
	}
	directory, err := os.MkdirTemp("", "kubedevice-robustness-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(directory)
	described, err := s.describe(r, ctx, root, directory)
	if err != nil {
		return nil, err
	}
	r.kubecri = *described.Nodes[0].Kubecri
	r.auditor = audit.New(func() (map[string]audit.Container, error) {
		return audit.Running(cluster.CgroupName(described.Dir), audit.Simulated)
	})
	if err := binaries.Build(ctx, filepath.Join(root, "test"), described.Programs, r.out, s.extras...); err != nil {
		return nil, err
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if r.cluster, err = cluster.Start(starting, described); err != nil {
		return nil, err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
		defer cancel()
		err = errors.Join(err, r.cluster.Stop(stopping))
	}()
	if err := r.prepare(starting); err != nil {
		return nil, err
	}
	return r.play(ctx, s.scenarios(r))
}

// clusterOptions returns those of a cluster of one node that has so many devices. Its files are in
// the directory.
func (r *run) clusterOptions(directory string, devices int) (cluster.Options, error) {
	described, err := cluster.Default(1)
	if err != nil {
		return described, err
	}
	r.inventory, r.devices = filepath.Join(directory, "simgpu.yaml"), devices
	described.Nodes[0].Mode = r.options.Mode
	described.Nodes[0].Inventory = r.inventory
	described.Visible = append(described.Visible, directory)
	described.Dir = filepath.Join(r.options.Dir, "cluster")
	return described, errors.Join(os.Chmod(directory, 0o755), r.setHealth())
}

// setHealth describes the node's devices, of which these are unhealthy. The file is replaced in one
// step, as kubecri may read it at any time.
func (r *run) setHealth(unhealthy ...string) error {
	content := fmt.Sprintf("count: %d\nidPrefix: gpu-\nmemory: 80Gi\ntopology: [2, 4]\nunhealthy: [%s]\n", r.devices,
		strings.Join(unhealthy, ", "))
	next := r.inventory + ".next"
	return errors.Join(os.WriteFile(next, []byte(content), 0o644), os.Rename(next, r.inventory))
}

// describe builds a kubecri with failpoints and returns the options of a cluster whose node has it,
// a device for each container of a scenario, and some to spare.
func (r *run) describe(ctx context.Context, root, directory string) (cluster.Options, error) {
	described, err := r.clusterOptions(directory, r.options.Creations+spares)
	if err != nil {
		return described, err
	}
	kubecri := filepath.Join(directory, "kubecri")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "failpoint", "-o",
		kubecri, "./cmd/kubecri")
	build.Dir = root
	if said, err := build.CombinedOutput(); err != nil {
		return described, fmt.Errorf("build kubecri with failpoints: %w\n%s", err, said)
	}
	r.trigger = filepath.Join(directory, "failpoint")
	described.Nodes[0].Kubecri.Path = kubecri
	described.Nodes[0].Kubecri.Env = append(described.Nodes[0].Kubecri.Env, failpointVariable+"="+r.trigger)
	return described, nil
}

// failpointVariable names the trigger to kubecri; package failpoint has the name only when it is
// built for it.
const failpointVariable = "KUBECRI_FAILPOINT"

// prepare waits until the node has published its devices, and makes a namespace.
func (r *run) prepare(ctx context.Context) (err error) {
	r.node = r.cluster.Nodes[0]
	if r.observer, err = observe.New(ctx, r.cluster); err != nil {
		return err
	}
	namespace, err := r.cluster.Client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "robustness"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	r.namespace = namespace.Name
	if err := r.cluster.Client.AwaitServiceAccount(ctx, r.namespace); err != nil || r.options.Mode != cluster.ModeNRI {
		return err
	}
	return r.awaitRequired(ctx)
}

// play plays scenarios one after another and returns their results, as far as it came.
func (r *run) play(ctx context.Context, scenarios []scenario) (results []*Result, err error) {
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { r.auditor.Watch(watching) })
	defer watch.Wait()
	defer stop()
	defer r.aging.Wait()
	for _, s := range scenarios {
		fmt.Fprintf(r.out, "%s ... ", s.title)
		result, err := r.scenario(ctx, s)
		if err != nil {
			return results, fmt.Errorf("%s: %w", s.title, err)
		}
		fmt.Fprintf(r.out, "%d kills, %.0f s\n", result.Kills, result.Seconds)
		results = append(results, result)
	}
	return results, r.finish(ctx, results)
}

// finish waits until nothing may be granted any more, and puts what came to light since the last
// scenario into its result.
func (r *run) finish(ctx context.Context, results []*Result) error {
	last := results[len(results)-1]
	if r.releases != nil {
		if err := r.leave(ctx, r.releases.kept, last); err != nil {
			return err
		}
	}
	r.aging.Wait()
	if _, err := r.inspect(last); err != nil {
		return err
	}
	recorded, err := r.checkpointed(ctx)
	if err != nil {
		return err
	}
	for _, grant := range recorded {
		last.OrphanedGrants = append(last.OrphanedGrants, fmt.Sprintf("pod %s is on record, and all pods are gone",
			grant.Name))
	}
	return nil
}

// inspect adds to a result what the auditor found since the last look, and returns the containers
// that run, by id.
func (r *run) inspect(result *Result) (map[string]audit.Container, error) {
	r.noting.Lock()
	defer r.noting.Unlock()
	found, now, err := r.auditor.Report()
	result.SharedDevices = append(result.SharedDevices, found.Shared...)
	for _, ended := range found.Ended {
		if r.options.Mode == cluster.ModeNRI && slices.Contains(found.Bare, ended) {
			result.BareContainers++
			continue
		}
		result.EndedContainers = append(result.EndedContainers, ended)
	}
	result.CutOffStarts += found.CutOff
	return now, err
}
