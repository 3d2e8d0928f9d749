// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler makes the Kubernetes scheduler choose exact devices. It is upstream's command
// with one more framework plugin, which is in package frameworkplugin.
package scheduler

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/apiserver"
	"github.com/kubedevice/kubedevice/pkg/scheduler/failover"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
	"github.com/kubedevice/kubedevice/pkg/scheduler/neighbours"
	"github.com/kubedevice/kubedevice/pkg/scheduler/policies"
	"github.com/kubedevice/kubedevice/pkg/scheduler/readapi"
	"github.com/kubedevice/kubedevice/pkg/scheduler/whatif"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// DefaultPluginPath is where --devschedpath points when it is not given.
const DefaultPluginPath = "/schedulerplugins"

// NewCommand returns upstream's kube-scheduler command with more flags and one more framework
// plugin, which is enabled in every profile. The device schedulers are those that are built in, in
// this order, and after them those of the directory --devschedpath, which are loaded when the
// command runs, after flags and logging are set up. Call it once per process: it changes the
// process-wide defaults of scheduler configurations.
func NewCommand(builtIn ...allocation.Named) *cobra.Command {
	enableByDefault()
	var pluginPath string
	var allowWritable bool
	var wait time.Duration
	verdictCache, shareEvents := true, true
	quota := frameworkplugin.QuotaEnforce
	var sealKey string
	var sealMode seal.Mode
	var evictUnallocated bool
	topology := allocation.TopologyPrefer
	budgets := allocation.DefaultSearchBudgets
	api := readapi.NewServer()
	cmd := app.NewSchedulerCommand(func(registry frameworkruntime.Registry) error {
		seals, err := openSeals(sealKey, sealMode)
		if err != nil {
			return err
		}
		schedulers := allocation.Load(
			context.Background(), metrics.NewRecorder(), pluginPath, allowWritable, builtIn...)
		if err := budgets.Validate(); err != nil {
			return err
		}
		schedulers.SetSearchBudgets(budgets)
		schedulers.SetTopology(topology)
		options := frameworkplugin.Options{
			NoVerdictCache: !verdictCache, BestDevicesWait: wait, Quota: quota, Seals: seals,
			EvictUnallocated: evictUnallocated, NoShareEvents: !shareEvents,
		}
		return registry.Register(frameworkplugin.Name, newFactory(schedulers, options, api))
	})
	api.Follow(cmd.Flags())
	apiserver.Emulate(cmd)

	flags := pflag.NewFlagSet("devices", pflag.ExitOnError)
	flags.StringVar(&pluginPath, "devschedpath", DefaultPluginPath, "Directory of device scheduler plugins (*.so), "+
		"loaded in the order of their file names. A file that cannot be loaded is reported and left out.")
	flags.BoolVar(&allowWritable, pluginload.AllowWritableFlag, false,
		"Load plugin files that users other than root may write or replace.")
	flags.BoolVar(&verdictCache, "device-verdict-cache", true, "Cache on which nodes the devices for a pod fit. "+
		"Without it every node is evaluated for every pod: use that only to find out whether the cache is the "+
		"cause of a problem, or what it is worth.")
	flags.Var(&topology, "device-topology", "Which devices a pod gets that counts devices and says nothing of "+
		"topology: prefer, the best-connected ones that are free on a node; require, ones that are connected as well "+
		"as that many can be on any node, for which the pod waits.")
	flags.DurationVar(&wait, "best-devices-wait", 10*time.Minute, "How long a pod that requires topology waits for "+
		"devices that are best connected in all of the cluster, from the first attempt to schedule it. After that, it "+
		"prefers them. 0 is for ever: then one node that claims better devices than others, and never has them free, "+
		"keeps pods waiting.")
	flags.Var(&quota, "device-quota", "Which pods wait that request whole devices in their annotation beyond the "+
		"limits of the same container, which are what quotas count: enforce, those in a namespace with a "+
		"ResourceQuota that names the resource; everywhere, all; warn, none. The others get an event.")
	flags.StringVar(&sealKey, sealKeyFlag, "", "File of private keys in PEM with which allocations are sealed, the "+
		"one that signs first; all of them are valid. It is read again when it changes. kubecri seal-keys makes one.")
	flags.Var(&sealMode, sealModeFlag, "What a bound pod without a valid seal holds: what its annotation says (off, "+
		"and warn, which reports it in metrics and events), or only what its node reports (enforce). The default is "+
		"enforce with --"+sealKeyFlag+", else off.")
	flags.BoolVar(&evictUnallocated, "device-evict-unallocated", false, "Evict pods that request devices and were "+
		"bound without any before this scheduler led, if they have not started and a controller will make them "+
		"again. Disruption budgets hold.")
	flags.BoolVar(&shareEvents, "device-share-events", true, "Say in an event on each pod that is given a part of a "+
		"device, such as some of a GPU's memory, that its share is counted and not enforced.")
	flags.DurationVar(&budgets.Node, "device-search-budget", budgets.Node, "How long to look for devices for one "+
		"pod on one node. It is counted in steps of the search first, 80,000 for each millisecond, which takes half "+
		"of the time on a usual machine; then in time. A pod that is refused because of it says so in its event.")
	flags.DurationVar(&budgets.Cycle, "device-cycle-budget", budgets.Cycle, "How long to look for devices for one "+
		"pod on all nodes together, on top of what ordinary requests take; counted in the same way. Nodes that are "+
		"left over are searched when the pod is tried again.")
	api.AddFlags(flags)
	cmd.Flags().AddFlagSet(flags)
	appendHelp(cmd, flags)
	return cmd
}

const (
	sealKeyFlag  = "device-seal-key"
	sealModeFlag = "device-seal-mode"
)

// openSeals reads the keys of seals, if there is a file of them.
func openSeals(path string, mode seal.Mode) (frameworkplugin.Seals, error) {
	mode, err := mode.Resolve(path != "")
	if err != nil {
		return frameworkplugin.Seals{}, fmt.Errorf("--%s: %w", sealModeFlag, err)
	}
	if path == "" {
		return frameworkplugin.Seals{Mode: mode}, nil
	}
	keys, err := seal.OpenPrivateKeys(path)
	if err != nil {
		return frameworkplugin.Seals{}, fmt.Errorf("--%s: %w; make the file with kubecri seal-keys", sealKeyFlag, err)
	}
	return frameworkplugin.Seals{Keys: keys, Mode: mode}, nil
}

// newFactory returns the factory of the framework plugin. The framework calls it once per profile;
// what the profiles share is made in the first call, and so are the read API and the check of the
// admission policies.
func newFactory(
	schedulers *allocation.Set, options frameworkplugin.Options, api *readapi.Server,
) frameworkruntime.PluginFactory {
	var once sync.Once
	var shared *frameworkplugin.Shared
	var err error
	start := func(ctx context.Context, handle fwk.Handle) {
		if shared, err = frameworkplugin.NewShared(ctx, schedulers, handle, options); err != nil {
			return
		}
		metrics.RegisterCaches(schedulers.CacheStats, shared.Nodes().CacheStats)
		shared.Run(func(ctx context.Context) { policies.Watch(ctx, handle.ClientSet()) })
		shared.Run(func(ctx context.Context) {
			server := handle.ClientSet().Discovery()
			if err := apiserver.WaitForAPIs(ctx, handle.SharedInformerFactory(), server); err != nil {
				klog.FromContext(ctx).Error(err, "The scheduler cannot start")
				klog.FlushAndExit(klog.ExitFlushTimeout, 1)
			}
		})
		core := handle.SharedInformerFactory().Core().V1()
		ownPods := core.Pods().Lister()
		shared.Run(func(ctx context.Context) { neighbours.Watch(ctx, ownPods, shared.PodsOn) })
		if err = startFailover(shared, schedulers, handle, options.Seals.Keys); err != nil {
			return
		}
		err = api.Start(shared.Run, readapi.Parts{
			Source: &readapi.Cluster{
				Schedulers: schedulers,
				States:     shared.Nodes(),
				NodeLister: core.Nodes().Lister(),
				PodLister:  core.Pods().Lister(),
				PodsOn:     shared.PodsOn,
			},
			Placement: whatif.New(ctx, shared, handle, configuredProfiles).Handler(),
			Client:    handle.ClientSet(),
			Pods:      core.Pods().Lister(),
			Synced:    []cache.InformerSynced{core.Nodes().Informer().HasSynced, core.Pods().Informer().HasSynced},
		})
	}
	return func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		once.Do(func() { start(ctx, handle) })
		if err != nil {
			return nil, err
		}
		return frameworkplugin.New(handle, shared), nil
	}
}

// startFailover answers nodes that ask for other devices for pods that run. Without keys there is
// nothing by which a node could know the answer.
func startFailover(
	shared *frameworkplugin.Shared, schedulers *allocation.Set, handle fwk.Handle, keys *seal.File,
) error {
	if keys == nil {
		return nil
	}
	core := handle.SharedInformerFactory().Core().V1()
	var mu sync.Mutex
	var since time.Time
	complete := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		if since.IsZero() && shared.Synced() {
			since = time.Now()
		}
		return since
	}
	engine := failover.New(failover.Options{
		Schedulers: schedulers, Nodes: shared.Nodes(), NodeLister: core.Nodes().Lister(), PodsOn: shared.PodsOn,
		Client: handle.ClientSet(), Keys: keys, Recorder: handle.EventRecorder(), Leads: readapi.Leads(complete),
	})
	if err := engine.Follow(core.Nodes().Informer()); err != nil {
		return fmt.Errorf("follow nodes that ask for other devices: %w", err)
	}
	shared.Run(engine.Run)
	return nil
}

// appendHelp prints the section of our flags after upstream's usage and help, which list their own
// sections only.
func appendHelp(cmd *cobra.Command, flags *pflag.FlagSet) {
	section := "\nDevices flags:\n\n" + flags.FlagUsages()
	usage, help := cmd.UsageFunc(), cmd.HelpFunc()
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		if err := usage(cmd); err != nil {
			return err
		}
		cmd.PrintErr(section)
		return nil
	})
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		help(cmd, args)
		cmd.Print(section)
	})
}
