// Stations on one channel: each of k that have something to send does so with a chance that the scheduler sets; it
// arrives if no other sends. Is all sent within 20 slots, while more comes in?
mdp
const double MORE = 0.1;
module channel
  k : [0..6] init 5;
  t : [0..20] init 0;
  [sixth] k>0 & t<20 -> k*1/6*pow(5/6,k-1)*(1-MORE) : (k'=k-1) & (t'=t+1)
    + k*1/6*pow(5/6,k-1)*MORE + (1-k*1/6*pow(5/6,k-1))*(1-MORE) : (t'=t+1)
    + (1-k*1/6*pow(5/6,k-1))*MORE : (k'=min(k+1,6)) & (t'=t+1);
  [third] k>0 & t<20 -> k*1/3*pow(2/3,k-1)*(1-MORE) : (k'=k-1) & (t'=t+1)
    + k*1/3*pow(2/3,k-1)*MORE + (1-k*1/3*pow(2/3,k-1))*(1-MORE) : (t'=t+1)
    + (1-k*1/3*pow(2/3,k-1))*MORE : (k'=min(k+1,6)) & (t'=t+1);
  [half] k>0 & t<20 -> k*1/2*pow(1/2,k-1)*(1-MORE) : (k'=k-1) & (t'=t+1)
    + k*1/2*pow(1/2,k-1)*MORE + (1-k*1/2*pow(1/2,k-1))*(1-MORE) : (t'=t+1)
    + (1-k*1/2*pow(1/2,k-1))*MORE : (k'=min(k+1,6)) & (t'=t+1);
  [over] k=0 | t=20 -> true;
endmodule
label "goal" = k=0;
label "avoid" = t=20 & k>0;
