// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/adoption"
	"github.com/kubedevice/kubedevice/pkg/node/advertise"
	"github.com/kubedevice/kubedevice/pkg/node/cdi"
	"github.com/kubedevice/kubedevice/pkg/node/devicecheck"
	"github.com/kubedevice/kubedevice/pkg/node/devicehealth"
	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
	"github.com/kubedevice/kubedevice/pkg/node/failover"
	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/holders"
	"github.com/kubedevice/kubedevice/pkg/node/images"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/node/nri"
	"github.com/kubedevice/kubedevice/pkg/node/nrifrontend"
	"github.com/kubedevice/kubedevice/pkg/node/nrilist"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/podresources"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/node/policing"
	"github.com/kubedevice/kubedevice/pkg/node/seals"
	"github.com/kubedevice/kubedevice/pkg/node/sharelibrary"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
	"github.com/kubedevice/kubedevice/pkg/trim"
)

const (
	// podTimeout is how long a container of an unknown pod waits for the pod to appear in the API
	// server.
	podTimeout = 5 * time.Second
	// reconcileRetry and reconcileInterval pace the comparison of the grants with the runtime.
	reconcileRetry, reconcileInterval = time.Second, 30 * time.Second
)

// node is everything behind the proxy.
type node struct {
	options       *Options
	upstream      *grpc.ClientConn
	metrics       *nodeMetrics
	registry      *pods.Registry
	latest        *plugins.Latest // of plugins
	adopter       *adoption.Adopter
	checkpoint    *grants.Checkpoint
	files         *plugins.Files
	claims        *adoption.Files // files, as far as their resources are not another's
	damper        *plugins.Damper // of plugins
	deviceManager *devicemanager.Manager
	plugins       *plugins.Manager
	devices       *nodeDevices
	resources     *podresources.Server
	cdi           *cdi.Support
	firewall      *firewall.Firewall // nil if it is off
	images        *images.Cache
	variables     *cdi.Variables
	advertiser    *advertise.Advertiser
	events        *announcer
	keys          *seals.Keys      // nil where seals are off
	agreement     *seals.Agreement // with keys
	holders       *holders.Controller
	adoption      *adoption.Controller
	health        *devicehealth.Tracker
	taints        *devicehealth.Taints
	refusals      *admission.Refusals
	waiting       *admission.Waiting // and checkpoint
	missing       *devicecheck.Checker
	failover      *failover.Controller  // nil where devices are not replaced
	usage         *deviceUsage          // nil where it is off
	library       *sharelibrary.Library // nil for none
	enforcement   *policing.Enforcement // nil where nothing holds containers to shares
	registration  *nri.Registration     // nil where it is off
	nri           *nriParts             // nil in ModeCRI

	running sync.WaitGroup
}

// newNode makes the parts; start runs them. boot identifies the machine's present boot, see
// grants.Options.
func newNode(ctx context.Context, options *Options, boot string, upstream *grpc.ClientConn) *node {
	n := &node{options: options, upstream: upstream, registry: pods.NewRegistry(podTimeout), cdi: cdi.NewSupport(),
		latest: plugins.NewLatest(options.NodeName), metrics: newNodeMetrics(),
		events: newAnnouncer(ctx, options.NodeName), images: images.NewCache(upstream),
		variables: cdi.NewVariables(cmp.Or(options.cdiDir, cdi.SpecDir)), refusals: admission.NewRefusals()}
	n.missing = newDeviceCheck(upstream, options.UpstreamEndpoint, missingReporter{n.metrics, n.events})
	n.registry.Follow(n.latest)
	if err := n.registry.Load(options.podsPath()); err != nil {
		klog.FromContext(ctx).Error(err, "The node's pods are unknown until the API server has listed them")
	}
	n.deviceManager = devicemanager.New(devicemanager.Options{
		Dir: options.devicePluginsDir(), RegistryDir: options.registryDir(), KubeletDir: options.KubeletDir,
		StateFile:        options.devicesPath(),
		KubeletResources: devicemanager.FromKubelet(options.kubeletPodResourcesPath(), kubeletstate.Path),
		Metrics:          n.metrics,
	})
	if err := n.deviceManager.Load(); err != nil {
		klog.FromContext(ctx).Error(err, "The devices of device plugins are unknown until the plugins register")
	}
	n.adopter = adoption.NewAdopter(options.NodeName, kubeletstate.Dir, n.deviceManager, n.registry)
	runtime := grants.CRI(upstream)
	if options.Mode == ModeNRI {
		n.nri = &nriParts{view: nrifrontend.NewView()}
		runtime = n.nri.view.Runtime(runtime)
	}
	n.checkpoint = grants.New(grants.Options{
		Path: options.grantsPath(), Boot: boot, Node: options.NodeName,
		Runtime: runtime, Pods: n.registry, Inventory: n.latest, Origin: n.adopter,
		Observer: findingReporter{n.metrics, n.events},
	})
	n.metrics.showGrants(n.checkpoint)
	load := options.loadPlugins
	if load == nil {
		load = plugins.FromDirectory(options.PluginDir, options.AllowWritablePlugins)
	}
	n.files = plugins.NewFiles(options.NodeName, load, plugins.DefaultTiming(), n.metrics)
	kubelets := devicemanager.NewTransport(n.deviceManager, n.checkpoint.Responses())
	var err error
	n.claims, err = adoption.NewFiles(adoption.FilesOptions{
		Files: n.files, KubeletDir: kubeletstate.Dir, StateFile: options.filesPath(),
		Kubelet: n.deviceManager, Grants: n.checkpoint, Events: n.events,
		VirtualDevices: virtualDevices(options.VirtualDevices),
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Plugin files take over the resources that the kubelet remembers")
	}
	n.plugins = n.latest.Manager(options.NodeName, n.claims, kubelets)
	if options.DeviceFirewall {
		n.firewall = firewall.New(firewall.Options{
			Plugins: n.plugins, Vendors: options.DeviceFirewallVendors, Kubelet: n.deviceManager,
			Files: deviceFiles{}, StateFile: options.firewallPath(),
		})
		n.firewall.Load(ctx)
		describeVariables(ctx, n.firewall, n.variables, options.Mode == ModeNRI)
	}
	n.taints = devicehealth.NewTaints(n.events)
	counts := kubeletCounts{n.deviceManager, n.claims}
	n.devices = &nodeDevices{n.plugins, counts, n.taints}
	shares := &nodeShares{pods: n.registry}
	if options.DeviceUsageInterval > 0 {
		n.usage = newDeviceUsage(n.plugins, n.checkpoint, runtime, options)
		n.metrics.registry.CustomMustRegister(newUsageMetrics(n.usage.reader, n.devices, maxDeviceSeries))
	}
	n.library, n.enforcement = newEnforcement(n.plugins, n.usage, options)
	shares.enforcement = n.enforcement
	n.metrics.registry.CustomMustRegister(newDeviceMetrics(n.devices, n.checkpoint, shares, maxDeviceSeries))
	n.damper = plugins.NewDamper(n.plugins)
	n.waiting = admission.NewWaiting(n.checkpoint, n.registry)
	n.health = devicehealth.NewTracker(n.damper, n.waiting, n.events)
	advertising := advertise.Options{
		Metrics: n.metrics, Events: n.events, Names: n.registry,
		Pods: n.registry, Kubelet: counts, Health: n.health, Taints: n.taints,
		VirtualDevices: virtualDevices(options.VirtualDevices),
	}
	if mode, _ := options.sealMode(); mode != seal.Off { // it was validated
		n.keys = seals.NewKeys(ctx, seals.Options{
			Certificates: options.SealCertificates, TrustBundle: options.SealTrustBundle, Cache: options.sealsPath(),
		})
		n.agreement = seals.NewAgreement(options.SealMode, n.keys)
		n.holders = holders.New(options.NodeName, n.keys, n.registry, n.checkpoint)
	} else {
		n.holders = holders.New(options.NodeName, nil, n.registry, n.checkpoint)
	}
	n.resources = podresources.New(podresources.Options{
		Socket: options.podResourcesPath(), Kubelet: options.kubeletPodResourcesPath(),
		Synced: []<-chan struct{}{n.checkpoint.Opened(), n.plugins.Synced()},
		Grants: n.checkpoint, Claims: n.admission(), Pods: n.registry, Devices: n.devices,
	})
	n.adoption = adoption.New(adoption.Options{
		KubeletDir: kubeletstate.Dir, Manager: n.deviceManager, Adopter: n.adopter, Grants: n.checkpoint,
		Holders: n.holders, Files: n.claims,
	})
	advertising.Holders = n.holders
	if n.usage != nil {
		advertising.Usage = n.usage.publisher
	}
	if n.enforcement != nil {
		advertising.Enforcement = n.enforcement
	}
	switch {
	case n.nri != nil:
		n.registration = nri.New(nri.Options{
			Socket: options.NRISocket, Handler: n.newNRIFrontend(ctx), List: runtimeList{nrilist.New(upstream)},
			Settings: validatorOf(options.UpstreamEndpoint),
		})
	case options.NRISocket != "":
		n.registration = nri.New(nri.Options{
			Socket: options.NRISocket, List: runtimeList{nrilist.New(upstream)},
			Settings: validatorOf(options.UpstreamEndpoint),
		})
	}
	if n.registration != nil {
		advertising.Runtime = n.registration
	}
	if n.nri != nil {
		n.metrics.showRegistration(n.registration)
	}
	if n.keys != nil {
		n.metrics.showSeals(n.keys, n.holders, n.agreement)
	}
	if n.notReplaced() == "" {
		n.failover = failover.New(failover.Options{
			Checkpoint: n.checkpoint, Pods: n.registry, Runtime: failover.CRI(upstream, runtime),
			Admission: n.admission(), Events: n.events, Metrics: n.metrics,
		})
		advertising.Replacements = n.failover
	}
	n.advertiser = advertise.New(options.NodeName, n.damper, advertising)
	if options.Kubeconfig != "" {
		n.metrics.showNode(n.advertiser)
	}
	return n
}

// trimDelay is how long after the plugins' first reports the start is over: caches are filled and
// devices published.
const trimDelay = 10 * time.Second

// trimAfterStart gives back the memory that only the start needs.
func (n *node) trimAfterStart(ctx context.Context) {
	select {
	case <-n.plugins.Synced():
	case <-ctx.Done():
		return
	}
	select {
	case <-time.After(trimDelay):
	case <-ctx.Done():
		return
	}
	if err := trim.ReduceRSS(); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot give back the memory that the start needed")
	}
}

// start runs all parts until ctx is done.
func (n *node) start(ctx context.Context, servePath string) {
	n.running.Go(func() { n.serveMetrics(ctx, servePath) })
	n.running.Go(func() {
		n.files.RunWith(ctx, grants.Holdings{Checkpoint: n.checkpoint, Pods: n.registry, Published: n.advertiser})
	})
	n.running.Go(func() { n.plugins.Run(ctx) })
	n.running.Go(func() { n.damper.Run(ctx) })
	n.running.Go(func() { n.deviceManager.Run(ctx) })
	n.running.Go(func() { n.adoption.Run(ctx) })
	n.running.Go(func() { n.resources.Run(ctx) })
	n.running.Go(func() { n.followInventory(ctx) })
	n.running.Go(func() { n.trimAfterStart(ctx) })
	n.running.Go(func() { n.cdi.Watch(ctx, n.upstream) })
	n.running.Go(func() { n.missing.Run(ctx, devicecheck.Delays()) })
	if n.firewall != nil {
		n.running.Go(func() { n.firewall.Run(ctx) })
	}
	if n.usage != nil {
		n.running.Go(func() { n.usage.Run(ctx) })
	}
	if n.enforcement != nil {
		n.running.Go(func() { n.enforcement.Run(ctx) })
	}
	if n.registration != nil {
		n.running.Go(func() { n.register(ctx) })
	}
	n.running.Go(func() { n.checkpoint.KeepReconciled(ctx, reconcileRetry, reconcileInterval) })
	n.running.Go(func() { n.registry.KeepSaved(ctx, n.options.podsPath()) })
	if n.keys != nil {
		n.running.Go(func() { n.keys.Run(ctx) })
		n.running.Go(func() { n.agreement.Run(ctx, clock.RealClock{}, n.events.warnOfSealMode) })
	}
	n.running.Go(func() { n.holders.Run(ctx) })
	if n.options.Kubeconfig == "" {
		klog.FromContext(ctx).
			Info(
				"Standalone: there is no --kubeconfig, so no devices are published, and pods from an API server are " +
					"refused")
		return
	}
	n.running.Go(func() {
		client := connect(ctx, n.options.Kubeconfig)
		if client == nil {
			return
		}
		n.events.sendTo(client)
		var using sync.WaitGroup
		using.Go(func() { n.registry.Watch(ctx, client, n.options.NodeName) })
		using.Go(func() { n.advertiser.Run(ctx, client) })
		using.Go(func() { n.waiting.Run(ctx) })
		using.Go(func() { n.health.Run(ctx) })
		using.Go(func() { n.healthController(client).Run(ctx) })
		using.Go(func() { n.taintController(client).Run(ctx) })
		if n.usage != nil {
			using.Go(func() { n.policing(client).Run(ctx) })
		}
		if n.failover != nil {
			using.Go(func() { n.failover.Run(ctx) })
		}
		if n.keys != nil {
			using.Go(func() { n.keys.WatchTrustBundle(ctx, client) })
		}
		using.Go(func() { n.events.warnOfDamage(ctx, n.checkpoint, n.options.grantsPath()) })
		using.Wait()
	})
}

// findingReporter counts containers whose annotations do not count, and puts a warning on their
// pods.
type findingReporter struct {
	metrics *nodeMetrics
	events  *announcer
}

var _ grants.Observer = findingReporter{}

// Found implements grants.Observer.
func (f findingReporter) Found(found grants.Finding) {
	f.metrics.findings.WithLabelValues(string(found.Reason)).Inc()
	f.events.warnOfFinding(found)
}

// wait returns when all parts have ended. Their context must be done.
func (n *node) wait(ctx context.Context) {
	n.running.Wait()
	if n.nri != nil {
		n.nri.close()
	}
	n.events.close()
	if err := n.checkpoint.Close(); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot close the checkpoint of granted devices")
	}
}

// healthController does what follows for pods when their devices fail.
func (n *node) healthController(client kubernetes.Interface) *devicehealth.Controller {
	return devicehealth.NewController(devicehealth.Options{
		Tracker: n.health, Grants: n.waiting, Pods: n.registry,
		Default: devicehealth.Rule{
			Policy: n.options.OnDeviceFailure, GracePeriod: n.options.DeviceFailureGracePeriod,
		},
		Replacer: n.checkpoint, NotReplaced: n.notReplaced(),
		Events: n.events, Metrics: n.metrics,
	}, client)
}

// taintController evicts pods from devices that are tainted.
func (n *node) taintController(client kubernetes.Interface) *devicehealth.TaintController {
	return devicehealth.NewTaintController(devicehealth.TaintOptions{
		Taints: n.taints, Grants: n.checkpoint, Pods: n.registry,
		Events: n.events, Metrics: n.metrics,
	}, client)
}

// policing acts on containers that use more than their share.
func (n *node) policing(client kubernetes.Interface) *policing.Controller {
	return policing.New(policing.Options{
		Usage: n.usage.reader, Interval: n.options.DeviceUsageInterval, Pods: n.registry,
		Default: n.options.OnShareExceeded, GracePeriod: n.options.ShareExceededGracePeriod,
		Ender:   nrifrontend.CRI(n.upstream),
		Evictor: devicehealth.Evictor{Client: client, Events: n.events, Metrics: n.metrics},
		Events:  n.events, Metrics: n.metrics, Clock: clock.RealClock{},
	})
}

// notReplaced returns why this node gives containers that run no other devices, or nothing.
func (n *node) notReplaced() string {
	seals := seal.Off
	if n.keys != nil {
		seals = n.agreement.Mode()
	}
	return notReplaced(n.options.Mode, seals)
}

// notReplaced returns why devicehealth.Replace means devicehealth.Evict with these settings, or
// nothing where it does not.
func notReplaced(mode Mode, seals seal.Mode) string {
	switch {
	case seals != seal.Enforce:
		return "the node does not enforce seals"
	case mode == ModeNRI:
		return "the node's kubecri is an NRI plugin"
	}
	return ""
}

// followInventory keeps the registry's device resources up to date.
func (n *node) followInventory(ctx context.Context) {
	refused := ""
	var contested map[types.ResourceName]error
	for {
		now, changed := n.plugins.Inventory()
		n.showContested(contested, now.Contested)
		contested = now.Contested
		n.registry.DeviceResources() // so that the registry has seen and saved the names
		// The report of one plugin may be too large by itself.
		if err := n.plugins.Check(); errors.Is(err, deviceinfo.ErrMalformed) && err.Error() != refused {
			refused = err.Error()
			n.events.WarnOfInventory(fmt.Errorf("%w. What was published before stays", err))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// showContested shows which resources are contested now, and warns of those that were not before,
// or for another reason.
func (n *node) showContested(before, now map[types.ResourceName]error) {
	names := slices.Sorted(maps.Keys(now))
	n.metrics.ShowConflicts(names)
	for _, name := range names {
		if before[name] == nil || before[name].Error() != now[name].Error() {
			n.events.WarnOfConflict(now[name])
		}
	}
}

// admission decides about the node's containers.
func (n *node) admission() *admission.Admission {
	a := &admission.Admission{
		NodeName:  n.options.NodeName,
		Pods:      n.registry,
		Devices:   n.plugins,
		Grants:    n.checkpoint,
		Responses: n.checkpoint.Responses(),
		HostFS:    inject.OS{},
		CDI:       n.cdi,
		Adopted:   n.adopter,
		Holders:   n.claims,
		Rivals:    n.deviceManager,
		Firewall:  n.firewall,
		Allowlist: n.options.allowlist,
		Kubelet: kubeletstate.Files{
			Checkpoint: kubeletstate.Path, ResourceClaims: filepath.Join(n.options.KubeletDir, kubeletstate.ClaimsName),
		},
		Images:    n.images,
		Sandboxes: newSandboxes(n.upstream),
		Variables: n.variables,
		Refusals:  n.refusals,
		Waiting:   n.waiting,
		Runtimes:  firewall.NewRuntimes(n.options.DeviceFirewallVendors), DeviceChecker: n.missing,
		Events:  n.events,
		Metrics: n.metrics,
	}
	if n.agreement != nil {
		a.Seals = n.agreement
	}
	if n.library != nil {
		a.ShareLimits = n.library
	}
	return a
}

// alive are the checks without which kubecri must be restarted.
func (n *node) alive(servePath string) []check {
	if n.nri != nil {
		return []check{{name: "nri-requests", run: func(context.Context) error { return n.nri.frontend.Check() }}}
	}
	return []check{socketAnswers(servePath)}
}

// ready are the checks without which some pod cannot be served.
func (n *node) ready(servePath string) []check {
	checks := append(n.alive(servePath), runtimeAnswers(n.upstream),
		check{name: "grants", run: func(context.Context) error { return n.checkpoint.Check() }},
		check{
			name: "plugins", run: func(context.Context) error { return n.plugins.Check() }, note: n.plugins.Remarks,
		},
		check{name: "device-plugins", run: func(context.Context) error { return n.deviceManager.Check() }},
		check{name: "pod-resources", run: n.resources.Check},
	)
	if n.keys != nil {
		checks = append(checks, check{
			name: "seals", run: func(context.Context) error { return n.keys.Check() }, note: n.agreement.Conflict,
		})
	}
	if n.registration != nil {
		checks = append(checks, check{name: "nri",
			run:  func(context.Context) error { return n.registration.Check() },
			note: func() string { return "default validator: " + n.registration.Validator() },
		})
	}
	if n.options.Kubeconfig != "" {
		checks = append(checks,
			check{name: "pods", run: func(context.Context) error { return n.registry.Check() }},
			check{name: "node", run: func(context.Context) error { return n.advertiser.Check() }},
		)
	}
	return checks
}

// kubeletCounts knows which resources of the node's inventory the kubelet counts and publishes.
type kubeletCounts struct {
	hosted *devicemanager.Manager
	files  *adoption.Files
}

// KubeletCounts implements advertise.Kubelet and podresources.Kubelet.
func (c kubeletCounts) KubeletCounts(extended types.ResourceName) bool {
	return c.hosted.KubeletCounts(extended) || c.files.KubeletCounts(extended)
}

// nodeDevices are the node's devices.
type nodeDevices struct {
	plugins *plugins.Manager
	kubelet kubeletCounts
	taints  *devicehealth.Taints
}

var _ podresources.Source = (*nodeDevices)(nil)

// Devices returns the current devices for the PodResources API.
func (d *nodeDevices) Devices() podresources.Devices {
	now, _ := d.plugins.Inventory()
	return d.devicesOf(now)
}

func (d *nodeDevices) devicesOf(now *plugins.Inventory) podresources.Devices {
	return podresources.Devices{Allocatable: now.Node.Allocatable, Names: now, Kubelet: d.kubelet}
}

// state returns the current devices for metrics.
func (d *nodeDevices) state() deviceState {
	now, _ := d.plugins.Inventory()
	taints, _ := d.taints.List()
	return deviceState{now.Node, d.devicesOf(now), now.Unhealthy(), taints}
}
