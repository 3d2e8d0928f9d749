// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/binaries"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/observe"
)

// Options say what is tried.
type Options struct {
	// Modes are those of kubecri in which the attempts are made, each in those of its own.
	Modes []cluster.Mode
	// Settings are those in which the attempts are made.
	Settings []Setting
	// Attempts are the rows of the table.
	Attempts []*Attempt
	// Dir is the absolute path of where the clusters and their logs are, and the results.
	Dir string
}

// Full returns the options of a full run, with the directory _output/attack.
func Full() (Options, error) {
	root, err := checkout.Root()
	if err != nil {
		return Options{}, err
	}
	attempts, err := Attempts()
	if err != nil {
		return Options{}, err
	}
	return Options{
		Modes: Modes(), Settings: Settings(), Attempts: attempts, Dir: filepath.Join(root, "_output", "attack"),
	}, nil
}

// Limits leave time for a busy machine: an attempt takes one or two seconds, and one that builds a
// program a minute.
const (
	startTimeout   = 3 * time.Minute
	attemptTimeout = 5 * time.Minute
	// concurrency is how many attempts are made at the same time.
	concurrency = 8
)

// run is a run in progress on the cluster of one mode and setting.
type run struct {
	mode    cluster.Mode
	setting Setting
	dir     string // for files of no lasting value
	keys    sealKeys
	// kubecri and scheduler are the programs, plugins is the directory of kubecri's plugins.
	kubecri, scheduler, plugins string
	cluster                     *cluster.Cluster
	observer                    *observe.Observer
}

// Result is what came of one attempt in one mode and setting.
type Result struct {
	ID      string       `json:"id"`
	Mode    cluster.Mode `json:"mode"`
	Setting Setting      `json:"setting"`
	Got     Got          `json:"got"`
	Want    Want         `json:"want"`
	// Problem is why what came of it could not be found out.
	Problem string  `json:"problem,omitempty"`
	Seconds float64 `json:"seconds"`
}

// OK reports whether the attempt came out as it must.
func (r Result) OK() bool {
	return r.Problem == "" && r.Got.Outcome == r.Want.Outcome && strings.Contains(r.Got.Words, r.Want.Words)
}

// Run makes all attempts in all their modes and settings, prints the table, and returns an error
// unless each came out as it must. out gets what people read.
func Run(ctx context.Context, out io.Writer, options Options) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	described, err := cluster.Default(1)
	if err != nil {
		return err
	}
	if err := binaries.Build(ctx, filepath.Join(root, "test"), described.Programs, out); err != nil {
		return err
	}
	began := time.Now()
	var results []Result
	for _, mode := range options.Modes {
		attempts := slices.DeleteFunc(slices.Clone(options.Attempts), func(a *Attempt) bool {
			return !slices.Contains(a.Modes, mode)
		})
		if len(attempts) == 0 {
			continue
		}
		for _, setting := range options.Settings {
			here, err := play(ctx, out, mode, setting, attempts, options.Dir)
			results = append(results, here...)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", mode, setting, err)
			}
		}
	}
	err = show(out, options.Attempts, results)
	fmt.Fprintf(out, "%d attempts, made %d times, %.0f s\n", len(options.Attempts),
		len(results), time.Since(began).Seconds())
	return errors.Join(save(options.Dir, options.Attempts, results), err)
}

// play makes attempts in one mode and setting, on a cluster of its own, which has its files in a
// directory below output.
func play(ctx context.Context, out io.Writer, mode cluster.Mode, setting Setting, attempts []*Attempt,
	output string) (results []Result, err error) {
	dir, err := os.MkdirTemp("", "kubedevice-attack-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	keys, err := newSealKeys(dir)
	if err != nil {
		return nil, err
	}
	if setting == Bare && mode == cluster.ModeNRI {
		if err := buildUnbounded(ctx, filepath.Join(dir, unboundedKubecri)); err != nil {
			return nil, err
		}
	}
	name := string(mode) + "-" + strings.ReplaceAll(string(setting), " ", "-")
	described, err := setting.describe(mode, filepath.Join(output, name), dir, keys)
	if err != nil {
		return nil, err
	}
	kubecri := described.Nodes[forged].Kubecri
	r := &run{
		mode: mode, setting: setting, dir: dir, keys: keys, kubecri: kubecri.Path, scheduler: described.Scheduler.Path,
	}
	for _, arg := range kubecri.Args {
		if plugins, ok := strings.CutPrefix(arg, "--cridevices="); ok {
			r.plugins = plugins
		}
	}
	fmt.Fprintf(out, "%s, %s: ", mode, setting)
	began := time.Now()
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
	if err := r.prepare(starting, described.Programs); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "cluster in %.0f s, ", time.Since(began).Seconds())
	results = r.all(ctx, attempts)
	surprises := 0
	for _, result := range results {
		if !result.OK() {
			surprises++
		}
	}
	fmt.Fprintf(out, "%d attempts in %.0f s, %d surprises\n", len(results),
		time.Since(began).Seconds(), surprises)
	return results, nil
}

// prepare waits until the cluster is as its setting says, keeps the scheduler's pods from the node
// forged, and gives the nodes the attacker's images.
func (r *run) prepare(ctx context.Context, programs string) error {
	observed := &cluster.Cluster{Client: r.cluster.Client, Nodes: r.cluster.Nodes[:withoutKubecri]}
	var err error
	if r.observer, err = observe.New(ctx, observed); err != nil {
		return err
	}
	const taint = `{"spec":{"taints":[{"key":"forged","value":"","effect":"NoSchedule"}]}}`
	for _, node := range r.cluster.Nodes[forged:] {
		if _, err := r.cluster.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, []byte(taint),
			metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	archive, err := writeImages(ctx, programs, r.dir)
	if err != nil {
		return err
	}
	for _, node := range r.cluster.Nodes {
		if err := node.ImportImages(ctx, archive); err != nil {
			return err
		}
	}
	// The files of other vendors' drivers, as far as the firewall requests them.
	if _, err := r.cluster.Nodes[scheduled].Run(ctx, "/bin/touch", "/dev/kfd", "/dev/hl0",
		"/dev/davinci_manager", unlistedFile); err != nil {
		return err
	}
	if len(r.cluster.Nodes) > unbounded {
		if _, err := r.cluster.Nodes[unbounded].Run(ctx, "/bin/touch", "/dev/nvidiactl", unlistedFile); err != nil {
			return err
		}
	}
	return r.awaitPolicies(ctx)
}

// awaitPolicies waits until the API server refuses what the policies refuse.
func (r *run) awaitPolicies(ctx context.Context) error {
	if !r.setting.policies() {
		return nil
	}
	s := r.stage(&Attempt{ID: "probe"}, 0)
	s.namespace = metav1.NamespaceDefault
	err := await.Until(ctx, "the policies to be in force", func(ctx context.Context) (bool, error) {
		_, err := s.admin.CoreV1().Pods(s.namespace).Create(ctx, s.forgedPod(),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		_, refused, err := refusal(err)
		return refused, err
	})
	if err != nil || r.mode != cluster.ModeNRI {
		return err
	}
	return r.coverOwnToleration(ctx)
}

// all makes all attempts: at the same time, and then those that must be alone.
func (r *run) all(ctx context.Context, attempts []*Attempt) []Result {
	results := make([]Result, len(attempts))
	var group errgroup.Group
	group.SetLimit(concurrency)
	for i, attempt := range attempts {
		if !attempt.Alone {
			group.Go(func() error {
				results[i] = r.one(ctx, attempt, i)
				return nil
			})
		}
	}
	group.Wait() //nolint:errcheck // what went wrong is in the results
	for i, attempt := range attempts {
		if attempt.Alone {
			results[i] = r.one(ctx, attempt, i)
		}
	}
	return results
}

// one makes one attempt.
func (r *run) one(ctx context.Context, attempt *Attempt, index int) Result {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	result := Result{ID: attempt.ID, Mode: r.mode, Setting: r.setting, Want: attempt.wanted(r.mode, r.setting)}
	try := attempt.Try
	if r.setting == Bare {
		result.Want = Want{Outcome: Succeeds}
		try = attempt.Off.Try
	}
	began := time.Now()
	s := r.stage(attempt, index)
	got, err := try(ctx, s)
	if cleaned := s.clean(context.WithoutCancel(ctx)); err == nil {
		err = cleaned
	}
	result.Got, result.Seconds = got, time.Since(began).Seconds()
	if err != nil {
		result.Problem = err.Error()
	}
	return result
}

// stage returns a stage with a device of its own.
func (r *run) stage(attempt *Attempt, index int) *Stage {
	id := fmt.Sprintf("gpu-%d", index)
	return &Stage{
		run: r, cluster: r.cluster, admin: r.cluster.Client, attempt: attempt, mode: r.mode, setting: r.setting,
		namespace: "attack-" + attempt.ID, device: id, card: cardOf(index),
	}
}
