// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/documents"
)

// runtimeNRIFacts are about NRI: whether the runtime registers kubecri, and whether containers can
// require it.
func (e *Enrolment) runtimeNRIFacts(ctx context.Context, s *surroundings) []Fact {
	socket := e.options.NRISocket
	there := socket != "" && e.options.Host.exists(socket)
	if e.options.Mode == ModeCRI {
		switch {
		case socket == "":
			return []Fact{fact("NRI", "not used: nriSocket is empty")}
		case !there:
			return []Fact{fact("NRI", "off; kubecri does not need it")}
		}
		on := fact("NRI", "on; its plugins go on working next to kubecri, which registers there to be required")
		return []Fact{on, e.validatorFact(ctx, s)}
	}
	if !there {
		return []Fact{fact("NRI", "there is no %s", socket).blocks("switch NRI on in the runtime's configuration and " +
			"restart it, or say in " + e.options.ConfigFile + " as nriSocket where it is; or use mode: cri")}
	}
	facts := []Fact{e.registrationFact(ctx, s, socket), e.validatorFact(ctx, s)}
	if e.options.MetricsAddress == "" {
		facts = append(facts, fact("health", "metricsBindAddress is empty").blocks("say in "+e.options.ConfigFile+
			" where kubecri serves its health, by which enrol sees that it is registered"))
	}
	if unit, err := e.unit(ctx, socketUnit); err == nil && unit["LoadState"] == "loaded" {
		facts = append(facts, fact("units", "%s is installed, which is for the kubelet", socketUnit).notice(
			"nothing calls it in mode nri: systemctl mask --now "+socketUnit))
	}
	return facts
}

// registrationFact is about whether the runtime takes kubecri as a plugin. It was tried, unless the
// runtime cannot send its list of containers.
func (e *Enrolment) registrationFact(ctx context.Context, s *surroundings, socket string) Fact {
	runtime, err := e.options.Runtimes.CheckNRI(ctx, s.kubelet.Endpoint, socket)
	if err != nil {
		return fact("NRI", "%v", err).blocks("the runtime must register kubecri, or use mode: cri")
	}
	return fact("NRI", "%s registers plugins at %s", runtime, socket)
}

// validatorFact is about the runtime's default validator, without which it creates containers with
// devices while kubecri is away.
func (e *Enrolment) validatorFact(ctx context.Context, s *surroundings) Fact {
	const away = "while kubecri is away, containers with devices are created without them"
	settings, err := e.options.Runtimes.Validator(ctx, s.kubelet.Endpoint)
	switch {
	case err != nil:
		return fact("validator", "unknown: %v", err).notice("where it is off, " + away + "; when the first container " +
			"was created, kubecri's /readyz says whether it is on (" + documents.URL + "operations.md)")
	case !settings.Enabled:
		return fact("validator", "off, by %s", settings.File).notice(away +
			": switch the default validator on there and restart the runtime (" + documents.URL + "operations.md)")
	}
	found := fact("validator", "on, by %s", settings.File)
	static := "static pods included, those of a control plane, too, and a kubecri that itself runs as a pod"
	if settings.Tolerated != "" {
		static += fmt.Sprintf(", except those of pods with the annotation %[1]s, %[1]s/pod or %[1]s/container.NAME: "+
			"so that no tenant writes it, the policy kubedevice-missing-plugins must have %[1]s in its variable keys; "+
			"it sees no static pods", settings.Tolerated)
	}
	switch {
	case slices.Contains(settings.Required, deviceinfo.NRIPlugin):
		found.Finding += fmt.Sprintf("; all containers require %s", strings.Join(settings.Required, ", "))
		return found.notice("while kubecri is away, the runtime creates no container at all, " + static)
	case settings.Tolerated != "":
		return found.notice("containers with devices require kubecri. While it is away, the runtime creates none of " +
			"them, " + static)
	case e.options.Mode == ModeNRI:
		return found.notice(fmt.Sprintf("containers with devices require kubecri. If none may pass the firewall "+
			"while kubecri is away, have all containers require it: required_plugins = [%q] there. The runtime then "+
			"creates none meanwhile, %s", deviceinfo.NRIPlugin, static))
	}
	return found
}
