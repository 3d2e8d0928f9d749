// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package enrolments enrols the nodes of a real cluster and has them leave, again and again, while
// pods with devices run, start, restart and end, and while programs are killed at random times.
// NVIDIA's device plugin serves the GPUs, registered with the kubelet at first, as its DaemonSets
// have it: one for nodes that are enrolled, one for the others.
//
// What counts is read from the kernel and the API server: no device is in two containers at the
// same time, no container ends, no pod fails or is refused, each node is ready, and after it has
// left, its files are what they were.
package enrolments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/audit"
	"github.com/kubedevice/kubedevice/test/binaries"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
)

// Options say how much is tried.
type Options struct {
	// Nodes are enrolled side by side, Rounds times all together.
	Nodes, Rounds int
	// Kills says whether programs are killed.
	Kills bool
	// Seed is of all that is chosen at random.
	Seed uint64
	// Dir is the absolute path of where the cluster and its logs are, and the results.
	Dir string
}

// Full returns the options of a full run, with the directory _output/enrolments.
func Full() (Options, error) {
	root, err := checkout.Root()
	if err != nil {
		return Options{}, err
	}
	return Options{Nodes: 2, Rounds: 100, Kills: true, Seed: 1, Dir: filepath.Join(root, "_output", "enrolments")}, nil
}

// startTimeout is how long a cluster may take to start or to stop.
const startTimeout = 3 * time.Minute

// run is a run in progress.
type run struct {
	options   Options
	out       io.Writer
	cluster   *cluster.Cluster
	auditor   *audit.Auditor
	pods      *pods
	namespace string

	mu     sync.Mutex
	rounds int // that are left
	result Result
}

// Run enrols and has leave, and returns an error unless nothing happened that must not. out gets
// what people read.
func Run(ctx context.Context, out io.Writer, options Options) (err error) {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	directory, err := os.MkdirTemp("", "kubedevice-enrolments-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	described, kubecri, err := describe(options, directory)
	if err != nil {
		return err
	}
	if err := binaries.Build(ctx, filepath.Join(root, "test"), described.Programs, out,
		binaries.DevicePlugins); err != nil {
		return err
	}
	r := &run{options: options, out: out, rounds: options.Rounds, result: Result{Kills: programKills{}}}
	r.auditor = audit.New(func() (map[string]audit.Container, error) {
		return audit.Running(cluster.CgroupName(described.Dir), audit.Visible)
	})
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if r.cluster, err = cluster.Start(starting, described); err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
		defer cancel()
		err = errors.Join(err, r.cluster.Stop(stopping))
	}()
	var sites []*site
	for i, n := range r.cluster.Nodes {
		node, err := NewNode(r.cluster, n, described, filepath.Join(directory, n.Name), kubecri)
		if err != nil {
			return err
		}
		s, err := r.newSite(node, rand.New(rand.NewPCG(options.Seed, uint64(i))))
		if err != nil {
			return err
		}
		sites = append(sites, s)
	}
	err = r.play(ctx, sites)
	r.result.show(out)
	return errors.Join(err, r.result.save(options.Dir), r.result.failure())
}

// describe returns the options of a cluster of nodes with a kubelet alone, and the kubecri to enrol
// them with. It has no device plugins of KubeDevice's own.
func describe(options Options, directory string) (described cluster.Options, kubecri cluster.Program, err error) {
	if described, err = cluster.Default(options.Nodes); err != nil {
		return described, kubecri, err
	}
	none := filepath.Join(directory, "no-plugins")
	described.Dir = filepath.Join(options.Dir, "cluster")
	described.Visible = append(described.Visible, directory)
	described.Scheduler.Args = []string{"--devschedpath=" + none}
	for i := range described.Nodes {
		kubecri = cluster.Program{Path: described.Nodes[i].Kubecri.Path, Args: []string{"--cridevices=" + none}}
		described.Nodes[i].Kubecri, described.Nodes[i].Inventory = nil, ""
	}
	return described, kubecri, errors.Join(os.Chmod(directory, 0o755), os.Mkdir(none, 0o755))
}

// play has all nodes enrolled and leave until all rounds are done.
func (r *run) play(ctx context.Context, sites []*site) error {
	namespace, err := r.cluster.Client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "enrolments"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	r.namespace = namespace.Name
	if err := r.cluster.Client.AwaitServiceAccount(ctx, r.namespace); err != nil {
		return err
	}
	background, stop := context.WithCancel(ctx)
	r.pods = newPods(r.cluster.Client, r.namespace, sites)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer stop()
	watchers.Go(func() { r.auditor.Watch(background) })
	watchers.Go(func() { r.pods.watch(background) })
	for _, s := range sites {
		watchers.Go(func() { s.plugin.keep(background) })
	}
	var group errgroup.Group
	began := time.Now()
	for _, s := range sites {
		group.Go(func() error {
			if err := s.live(ctx); err != nil {
				return fmt.Errorf("node %s: %w", s.node.Name, err)
			}
			return nil
		})
	}
	err = group.Wait()
	r.result.Seconds = time.Since(began).Seconds()
	found, _, reportErr := r.auditor.Report()
	r.result.SharedDevices = append(r.result.SharedDevices, found.Shared...)
	r.result.EndedContainers = append(r.result.EndedContainers, found.Ended...)
	for _, s := range sites {
		node, nodeErr := s.node.API(ctx)
		if nodeErr == nil && !ready(node) {
			r.result.NotReady = append(r.result.NotReady, s.node.Name)
		}
		err = errors.Join(err, nodeErr, s.judge(&r.result))
	}
	return errors.Join(err, reportErr)
}

func ready(node *corev1.Node) bool { return !heartbeat(node).IsZero() }

// next takes a round, if any is left.
func (r *run) next() (int, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rounds == 0 {
		return 0, false
	}
	r.rounds--
	return r.options.Rounds - r.rounds, true
}

// note changes the result.
func (r *run) note(change func(*Result)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.result)
}
