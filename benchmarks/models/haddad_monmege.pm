// A long way to either side, and back to the middle at the first step in the other direction (Haddad and Monmege).
dtmc
const int N; // steps to each side
module walk
  at : [0..2*N] init N;
  [] at=N -> 0.5 : (at'=N-1) + 0.5 : (at'=N+1);
  [] at>0 & at<N -> 0.5 : (at'=at-1) + 0.5 : (at'=N);
  [] at>N & at<2*N -> 0.5 : (at'=at+1) + 0.5 : (at'=N);
  [] at=0 | at=2*N -> true;
endmodule
label "goal" = at=2*N;
label "avoid" = at=0;
