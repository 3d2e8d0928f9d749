// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package matrix runs chosen end-to-end tests on clusters of several versions of Kubernetes and
// containerd, and keeps a table of what came of them in docs/deploy/versions.md.
package matrix

import (
	"github.com/kubedevice/kubedevice/test/cluster"
)

// Setting is what a cluster is made of: the version of its API server, controller manager and
// kubelets, and the container runtime of its nodes.
type Setting struct {
	Kubernetes cluster.Kubernetes
	Runtime    cluster.Runtime
}

// Settings are the rows of the table, in its order.
func Settings() []Setting {
	return []Setting{
		{cluster.Kubernetes134, cluster.Containerd17},
		{cluster.Kubernetes134, cluster.Containerd24},
		{cluster.Kubernetes135, cluster.Containerd24},
		{cluster.Kubernetes136, cluster.Containerd24},
		{cluster.Kubernetes137, cluster.Containerd24},
	}
}

// Story is a column of the table: tests of one or more packages of test/e2e.
type Story struct {
	// ID names it, What says what is tested, in Markdown.
	ID, What string
	// Since is the first version that has what the story is about, if that is not the oldest.
	Since cluster.Kubernetes
	// Tests are the names of the tests, by the directory of their package in test/e2e.
	Tests map[string][]string
}

// Stories are the columns of the table, in its order.
func Stories() []Story {
	return []Story{
		{
			ID: "job", What: "pods get exactly the devices that the scheduler chose; exporters see them",
			Tests: map[string][]string{"devices": {
				"TestAPodWithNothingButALimitGetsItsDevicesAndNoOthers",
				"TestAPodThatRequestsNoDeviceGetsNoneAndIsUnchanged",
				"TestEachContainerOfAPodHasDevicesOfItsOwn",
				"TestAnInitContainerHasItsDevicesBeforeTheOthersHaveTheirs",
				"TestASidecarAndItsPodHaveDifferentDevicesAtTheSameTime",
				"TestAContainerThatIsRestartedGetsTheSameDevices",
				"TestAPartIsGivenInEveryWayAndTheOthersAreKeptFromIt",
				"TestAnExporterSeesEachPodWithItsDevices",
				"TestAnExporterSeesAllElseAsTheKubeletReportsIt",
				"TestForgedAnnotationsAreRefusedOnEveryPath",
				"TestADevicePodWithoutAValidAllocationIsRefusedWithAReason",
			}},
		},
		{
			ID: "restarts", What: "each program is killed, a node loses its power: containers and devices stay",
			Tests: map[string][]string{
				".": {
					"TestKilledProgramsComeBackAndContainersNeverNotice",
					"TestPodsComeBackAfterTheirNodeHadAPowerCut",
				},
				"devices": {
					"TestKilledProgramsGiveNoDeviceTwiceAndRunningContainersNeverNotice",
					"TestAfterAPowerCutPodsHaveTheSameDevicesAgain",
				},
			},
		},
		{
			ID: "preemption", What: "a pod of high priority gets the devices of others",
			Tests: map[string][]string{"scheduler": {
				"TestAPodOfHighPriorityGetsTheDevicesOfThePairThatCostsLeast",
				"TestASchedulerThatIsKilledGivesNoDeviceTwiceAndLosesNone",
			}},
		},
		{
			ID: "groups", What: "a group of pods runs all or nothing", Since: cluster.Kubernetes137,
			Tests: map[string][]string{"scheduler": {"TestAGroupOfDevicePodsRunsAllOrNothing"}},
		},
		{
			ID: "hosted", What: "device plugins of NVIDIA and Intel at kubecri, over restarts and reboots",
			Tests: map[string][]string{"vendors": {
				"TestAPodWithLimitsAloneGetsWhatTheSchedulerChoseFromEveryPlugin",
				"TestAllocateIsCalledOncePerContainerWithTheChosenDevices",
				"TestDevicesOfTwoVendorsAreOnOneNUMANodeIfAPodWantsThemSo",
				"TestAGPUThatFallsOffTheBusIsAllocatedToNoPodUntilItIsRepaired",
				"TestContainersNeverNoticeThatProgramsAreKilledAndNoDeviceIsGivenTwice",
				"TestPodsGoOnWhenTheirKubeletIsKilledWhileTheirPluginsAreAway",
				"TestPodsRunAgainWhenTheirNodeIsRebootedAndItsPluginsComeUpLate",
			}},
		},
		{
			ID: "takeover", What: "a plugin moves from the kubelet to kubecri while pods hold GPUs; a reboot",
			Tests: map[string][]string{"vendors": {
				"TestAHalfMigratedClusterServesPodsOnBothSidesAndNoPodFailsWhenTheOtherHalfFollows",
				"TestPodsThatHoldGPUsOfTheKubeletKeepThemWhenThePluginMovesToKubecri",
				"TestPodsOfANodeWithPlaceholderPluginsKeepTheirGPUsOverAReboot",
			}},
		},
		{
			ID: "enrolment", What: "`kubecri enrol`, `kubecri leave`; a kubelet that does not come up",
			Tests: map[string][]string{"enrolment": {
				"TestANodeIsEnrolledAndLeavesAsItWas",
				"TestAKubeletThatDoesNotComeUpIsBackWithItsEndpoint",
			}},
		},
		{
			ID: "versions", What: "what the server lacks is emulated or named; the policy for its version",
			Tests: map[string][]string{"versions": {
				"TestTheSchedulerEmulatesTheAPIServerAndPodsGetWhatItChose",
				"TestAFeatureGateWhoseAPIIsMissingEndsTheSchedulerWithAReason",
				"TestATrustBundleThatTheAPIServerLacksIsNamed",
				"TestThePolicyForTheAPIServersVersionKeepsDevicePodsForOurScheduler",
			}},
		},
	}
}

// has reports whether the version has what the story is about.
func (s Story) has(version cluster.Kubernetes) bool { return version >= s.Since }
